// What a session knows of a layer that another rank has: nothing but to how few tokens its state there can be cut.
#pragma once

#include <memory>
#include <vector>

#include "models/architectures/model_config.h"
#include "models/modules/stored_state.h"
#include "models/sessions/layer_state.h"

namespace halfbyte::models {

class AbsentState final : public LayerState, public StoredState {
 public:
  // Null: of a layer that a session can be cut in anywhere.
  static std::unique_ptr<LayerState> of(const LayerConfig& layer);

  std::unique_ptr<LayerState> fork() const override { return std::make_unique<AbsentState>(*this); }
  void commit(std::int64_t length) override;
  std::int64_t least(std::int64_t length) const noexcept override;
  void cut(std::int64_t length) override;
  std::int64_t bytes() const noexcept override { return 0; }
  std::int64_t bytes_for(std::int64_t) const noexcept override { return 0; }
  void visit_memory(const MemoryVisitor&) const override {}
  std::vector<StateTensor> tensors(std::int64_t length) const override;
  void restore(std::int64_t, const LayerSource&) override {}

 private:
  AbsentState(const Reach& reach, bool is_recurrent) : reach_(reach), is_recurrent_(is_recurrent) {}

  Reach reach_;
  bool is_recurrent_;
  std::int64_t let_go_ = 0;  // as KeyValueCache's
};

}  // namespace halfbyte::models
