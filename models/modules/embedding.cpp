#include "models/modules/embedding.h"

#include <utility>
#include <vector>

#include <ATen/ops/embedding.h>
#include <ATen/ops/scalar_tensor.h>

namespace halfbyte::models {
namespace {

std::optional<at::ScalarType> row_dtype_of(const LinearWeights& weights, const Compute& compute) {
  if (compute.stream || !weights.policy) return compute.stream;
  return Compute(*weights.policy).operand;
}

}  // namespace

Embedding::Embedding(LinearWeights weights, double scale, const Compute& compute)
    : compute_(compute), scale_(scale), row_dtype_(row_dtype_of(weights, compute)), weight_(std::move(weights.weight)) {
  if (const auto* dense = std::get_if<at::Tensor>(&weight_))
    weight_ = register_parameter("weight", *dense, /*requires_grad=*/false);
}

at::Tensor Embedding::rows(const at::Tensor& tokens) const {
  const LowBitTensor* weight = packed();
  if (!weight) return at::embedding(std::get<at::Tensor>(weight_), tokens);
  std::vector<std::int64_t> shape = tokens.sizes().vec();
  shape.push_back(weight->in_features);
  return weight->rows(tokens.reshape(-1)).dequantize(row_dtype_).view(shape);
}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  const at::Tensor found = compute_.as_stream(rows(tokens));
  if (scale_ == 1.0) return found;
  // A tensor, not a number: the original rounds it to the stream's dtype.
  return found * at::scalar_tensor(scale_, found.options());
}

std::int64_t Embedding::vocab_size() const {
  return packed() ? packed()->out_features() : std::get<at::Tensor>(weight_).size(0);
}

std::int64_t Embedding::hidden_size() const {
  return packed() ? packed()->in_features : std::get<at::Tensor>(weight_).size(1);
}

void Embedding::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  if (packed()) weight_ = packed()->to(device, non_blocking);
  torch::nn::Module::to(device, dtype, non_blocking);
}

void Embedding::to(torch::Dtype dtype, bool non_blocking) { torch::nn::Module::to(dtype, non_blocking); }

void Embedding::to(torch::Device device, bool non_blocking) {
  if (packed()) weight_ = packed()->to(device, non_blocking);
  torch::nn::Module::to(device, non_blocking);
}

}  // namespace halfbyte::models
