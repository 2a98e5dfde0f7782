#include "models/modules/embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/scalar_tensor.h>

namespace halfbyte::models {

Embedding::Embedding(at::Tensor weight, double scale, const Compute& compute) : compute_(compute), scale_(scale) {
  weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  const at::Tensor rows = compute_.as_stream(at::embedding(weight_, tokens));
  if (scale_ == 1.0) return rows;
  // A tensor, not a number: the original rounds it to the stream's dtype.
  return rows * at::scalar_tensor(scale_, rows.options());
}

}  // namespace halfbyte::models
