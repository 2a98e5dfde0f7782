// All sequences through one layer, some at a time.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "convert/calibrate/layer_runner.h"
#include "convert/calibrate/moments.h"

namespace halfbyte::convert::calibrate {

// "A.experts.3.B", the product of an expert of a stack "A.experts.B".
struct ExpertPath {
  std::string stack;
  std::size_t expert;
};
std::optional<ExpertPath> expert_path(const std::string& path);

class LayerPass {
 public:
  // `is_wanted`: whether the product's inputs are to be gathered.
  LayerPass(const LayerRunner& runner, std::function<bool(const models::Linear&)> is_wanted)
      : runner_(runner), is_wanted_(std::move(is_wanted)) {}

  // Shapes: (sequences, tokens, hidden_size), kept.
  at::Tensor run(const at::Tensor& input) const;
  at::Tensor gather(const at::Tensor& input, Moments& moments) const;
  // Of the first products whose inputs were not gathered yet: those that share their input, and of experts all that
  // stand alike. No more of the layer is run than they need. Nothing: all were.
  std::optional<Moments> next_stage(const at::Tensor& input);

 private:
  const LayerRunner& runner_;
  std::function<bool(const models::Linear&)> is_wanted_;
  std::set<const models::Linear*> done_;
};

}  // namespace halfbyte::convert::calibrate
