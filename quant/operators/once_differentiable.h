// Gradients by kernels, which autograd cannot look into.
#pragma once

#include <memory>
#include <string>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <ATen/core/grad_mode.h>

namespace halfbyte::operators {

// What `gradients` gives, made without a graph. Where the caller asked for one (create_graph), gradients of these fail
// by the name of `what` instead of being those of constants, as torch.autograd.function.once_differentiable has it.
template <class Gradients>
torch::autograd::variable_list once_differentiable(const char* what, const Gradients& gradients) {
  const bool has_graph = at::GradMode::is_enabled();
  torch::autograd::variable_list out;
  {
    const at::NoGradGuard without;
    out = gradients();
  }
  if (!has_graph) return out;
  for (at::Tensor& one : out) {
    if (one.defined()) one = one.detach().requires_grad_(true);
  }
  const std::string message = std::string(what) + " has no second derivatives";
  return (*std::make_shared<torch::autograd::DelayedError>(message, out.size()))(torch::autograd::variable_list(out));
}

}  // namespace halfbyte::operators
