// Gradients by kernels, which autograd cannot look into.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <ATen/core/grad_mode.h>

namespace halfbyte::operators {

// What `make` gives, made without a graph of `gradients` and of the tensors that `context` saved. Where the caller
// asked for one (create_graph), gradients that pass through here fail by the name of `what` instead of being left out,
// or being those of constants.
template <class Make>
torch::autograd::variable_list once_differentiable(const char* what, torch::autograd::AutogradContext* context,
                                                   const torch::autograd::variable_list& gradients, const Make& make) {
  const bool has_graph = at::GradMode::is_enabled();
  torch::autograd::variable_list out;
  {
    const at::NoGradGuard without;
    out = make();
  }
  if (!has_graph) return out;
  // What depends on them all.
  torch::autograd::variable_list all = out;
  all.insert(all.end(), gradients.begin(), gradients.end());
  for (at::Tensor& saved : context->get_saved_variables()) all.push_back(std::move(saved));
  torch::autograd::DelayedError failure(std::string(what) + " has no second derivatives",
                                        static_cast<std::int64_t>(all.size()));
  torch::autograd::variable_list wrapped = failure.apply(std::move(all));
  wrapped.resize(out.size());
  return wrapped;
}

}  // namespace halfbyte::operators
