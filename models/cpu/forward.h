// The forward pass on the CPU, in the fused kernels of quant/. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "models/cpu/workspace.h"
#include "models/sessions/session.h"

namespace halfbyte::models::cpu {

// Shapes: ids of the rows' tokens one after another (tokens), which the vocabulary has; stream (tokens, hidden_size).
struct PassInput {
  std::span<const std::int64_t> ids;
  std::span<const StepRow> rows;
  const float* stream;  // what the layer before the first here gave; null: this begins with the embedding
};

// What of a model's layers has no form in kernels, and runs as modules do. `layer`: its place in the view. Shapes: all
// (tokens, hidden_size).
class ModuleParts {
 public:
  virtual ~ModuleParts() = default;
  // What mixes the tokens, and what stands between, of what was normalised.
  virtual void mix(std::size_t layer, float* normalised, float* out) = 0;
  // `next`: what is multiplied after it; null: it is not known.
  virtual void feed_forward(std::size_t layer, float* normalised, Buffer& out, const ProductsView* next) = 0;
  virtual void complete(std::size_t layer, float* stream) = 0;  // the rest of a layer that has more, in place
  virtual void run(std::size_t layer, const std::function<void()>& work) = 0;  // with a name for what it throws
};

// All layers that the workspace has a view of, and the norm after them. What it leaves in the rows' sessions waits for
// Session::commit(). `modules`: null where all layers have a form. Shape: out (tokens, hidden_size).
void forward(Workspace& workspace, const PassInput& input, ModuleParts* modules, float* out);

}  // namespace halfbyte::models::cpu
