// All sequences through one layer, some at a time.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "convert/calibrate/layer_runner.h"
#include "convert/calibrate/meeting.h"
#include "convert/calibrate/moments.h"
#include "convert/calibrate/states.h"

namespace halfbyte::convert::calibrate {

class LayerPass {
 public:
  // Tokens that pass a layer at once, about: enough for products to run at full speed, and few enough that what lies
  // between them stays small.
  static constexpr std::int64_t kTokens = 1024;

  // `is_wanted`: whether the product's inputs are to be gathered.
  // `factors`: as of Moments. `meeting`: of the parts that have other sequences, and gather together; null: alone.
  LayerPass(const LayerRunner& runner, std::function<bool(const models::Linear&)> is_wanted,
            at::ScalarType factors = at::kFloat, Meeting* meeting = nullptr)
      : runner_(runner), is_wanted_(std::move(is_wanted)), factors_(factors), meeting_(meeting) {}

  // Shapes: (sequences, tokens, hidden_size), kept.
  at::Tensor run(const at::Tensor& input) const;
  at::Tensor gather(const at::Tensor& input, Moments& moments) const;
  // The same, a batch in memory at a time, of this part alone. `output` null: what the layer gives is not needed.
  void run(const States& input, StatesSink* output) const;
  // As many of those whose inputs were not gathered yet as have room in so many bytes of sums, but one at least.
  // Nothing: all were.
  std::optional<Moments> gather_some(const States& input, std::uint64_t most_bytes, StatesSink* output);

 private:
  using Later = std::set<const models::Linear*>;
  Moments gather_alone(const States& input, std::uint64_t most_bytes, StatesSink* output, Later& later) const;
  Moments gather_together(const States& input, std::uint64_t most_bytes, StatesSink* output, Later& later) const;

  const LayerRunner& runner_;
  std::function<bool(const models::Linear&)> is_wanted_;
  at::ScalarType factors_;
  Meeting* meeting_;
  std::set<const models::Linear*> done_;
  bool has_all_ = false;  // gather_some() left none for later
};

}  // namespace halfbyte::convert::calibrate
