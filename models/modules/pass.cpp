#include "models/modules/pass.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace halfbyte::models {
namespace {

RotaryTable rotary_of(const Pass& pass, std::size_t rope, at::Device device) {
  std::vector<at::Tensor> cosines, sines;
  for (const Session* session : pass.sessions) {
    const RotaryTable table = Rotary::of(*session, rope, session->length(), pass.tokens, device);
    cosines.push_back(table.cosine);
    sines.push_back(table.sine);
  }
  const auto of_rows = [&](const std::vector<at::Tensor>& parts) {
    return (pass.rows == 1 ? parts[0].unsqueeze(0) : at::stack(parts)).unsqueeze(2);
  };
  return {of_rows(cosines), of_rows(sines)};
}

// The keys from `begin` on; a token sees those up to itself that are in its reach.
KeyRange key_range(const Pass& pass, std::int64_t begin, const Reach& reach, at::Device device) {
  KeyRange range{reach, begin, pass.span - begin};
  const bool is_windowed = reach.window > 0 && pass.tokens > 1;
  range.is_causal = pass.is_uniform && pass.past.front() == 0 && pass.tokens > 1 && !is_windowed;
  if (range.is_causal || (pass.is_uniform && pass.tokens == 1)) return range;
  const at::Tensor past = pass.is_uniform ? at::tensor({pass.past.front()}) : at::tensor(pass.past);
  const at::Tensor last = past.view({-1, 1, 1, 1}) + at::arange(pass.tokens, at::kLong).view({1, 1, -1, 1});
  const at::Tensor keys = at::arange(begin, pass.span, at::kLong).view({1, 1, 1, -1});
  range.mask = keys <= last;
  if (reach.window > 0) {
    const at::Tensor first =
        reach.is_chunked ? last.floor_divide(reach.window) * reach.window : last - reach.window + 1;
    range.mask = range.mask.logical_and(keys >= first);
  }
  range.mask = range.mask.to(device);
  return range;
}

// A window that holds all that there is, is none.
Reach effective(const Reach& reach, std::int64_t span) { return span > reach.window ? reach : Reach{}; }

}  // namespace

const KeyRange& Pass::keys(const Reach& reach) const {
  return *std::ranges::find(ranges, effective(reach, span), &KeyRange::reach);
}

void Pass::note_not_finite() const noexcept {
  for (Session* session : sessions) session->note_not_finite();
}

std::vector<Reach> reaches_of(const ModelConfig& config) {
  std::vector<Reach> out;
  for (const LayerConfig& layer : config.layers) {
    if (std::ranges::find(out, layer.reach()) == out.end()) out.push_back(layer.reach());
  }
  return out;
}

Pass make_pass(std::vector<Session*> sessions, std::int64_t tokens, std::span<const Reach> reaches, at::Device device) {
  Pass pass{};
  pass.sessions = std::move(sessions);
  pass.rows = static_cast<std::int64_t>(pass.sessions.size());
  pass.tokens = tokens;
  for (const Session* session : pass.sessions) pass.past.push_back(session->length());
  const auto [shortest, longest] = std::ranges::minmax(pass.past);
  pass.span = longest + tokens;
  pass.is_uniform = shortest == longest;
  for (std::size_t rope = 0; rope < pass.sessions.front()->ropes().size(); ++rope)
    pass.rotaries.push_back(rotary_of(pass, rope, device));
  for (const Reach& of_layer : reaches) {
    const Reach reach = effective(of_layer, pass.span);
    if (std::ranges::find(pass.ranges, reach, &KeyRange::reach) != pass.ranges.end()) continue;
    pass.ranges.push_back(key_range(pass, reach.first_seen(shortest), reach, device));
  }
  return pass;
}

}  // namespace halfbyte::models
