#include "models/modules/causal_convolution.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>

#include "models/modules/module_path.h"

namespace halfbyte::models {

CausalConvolution::CausalConvolution(torch::nn::Module& parent, const WeightSet& weights, ModuleName kernel,
                                     const Naming& names) {
  const std::string path(names.*kernel);
  kernel_ = register_parameter_at(parent, path + ".weight", weights.parameter(kernel).value());
  if (const at::Tensor bias = weights.bias(kernel); bias.defined())
    bias_ = register_parameter_at(parent, path + ".bias", bias);
}

CausalConvolution::Result CausalConvolution::forward(const at::Tensor& x, const at::Tensor& before) const {
  const std::int64_t tokens = x.size(1);
  const at::Tensor all = at::cat({before, x.to(at::kFloat)}, 1);
  const at::Tensor kernel = kernel_.select(1, 0).to(at::kFloat);
  at::Tensor out = all.narrow(1, 0, tokens) * kernel.select(1, 0);
  for (std::int64_t i = 1; i < kernel.size(1); ++i)
    out = at::addcmul(out, all.narrow(1, i, tokens), kernel.select(1, i));
  if (bias_.defined()) out = out + bias_.to(at::kFloat);
  return {out, all.narrow(1, tokens, all.size(1) - tokens)};
}

}  // namespace halfbyte::models
