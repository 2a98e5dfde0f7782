#include "models/modules/absent_state.h"

#include <algorithm>

#include "models/modules/key_value_cache.h"
#include "models/modules/stored_state.h"

namespace halfbyte::models {

std::unique_ptr<LayerState> AbsentState::of(const LayerConfig& layer) {
  const bool is_recurrent = layer.mixer == MixerKind::kConvolution || layer.mixer == MixerKind::kDelta;
  const bool is_windowed = layer.mixer == MixerKind::kAttention && layer.window > 0 && layer.keys_of < 0;
  if (!is_recurrent && !is_windowed) return nullptr;
  return std::unique_ptr<LayerState>(new AbsentState(layer.reach(), is_recurrent));
}

void AbsentState::commit(std::int64_t length) { let_go_ = std::max(let_go_, KeyValueCache::let_go(reach_, length)); }

std::int64_t AbsentState::least(std::int64_t length) const noexcept {
  return is_recurrent_ ? length : KeyValueCache::least(reach_, let_go_);
}

void AbsentState::cut(std::int64_t length) { let_go_ = std::min(let_go_, KeyValueCache::blocks_of(length)); }

std::vector<StateTensor> AbsentState::tensors(std::int64_t) const { return {}; }

}  // namespace halfbyte::models
