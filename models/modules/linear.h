// Linear layers whose weight stays as it was loaded: packed codes (LowBitLinear), or dense rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <halfbyte/low_bit_linear.h>

#include "models/modules/compute.h"

namespace halfbyte::models {

struct LinearWeights {
  std::variant<at::Tensor, LowBitTensor> weight;
  std::optional<at::Tensor> bias;
  std::optional<DtypePolicy> policy = std::nullopt;  // of this product's operands; nothing: the model's
};

class DenseLinear : public Linear {
 public:
  DenseLinear(at::Tensor weight, const std::optional<at::Tensor>& bias, const LinearDtypes& dtypes);

  at::Tensor multiply(const at::Tensor& input, std::optional<at::ScalarType> result = std::nullopt) const override;
  void check(const std::string& name, std::vector<Violation>& violations) const override;
  std::int64_t in_features() const override { return weight_.size(1); }
  std::int64_t out_features() const override { return weight_.size(0); }
  at::Device device() const override { return weight_.device(); }
  at::ScalarType dtype() const override { return weight_.scalar_type(); }
  std::optional<quant::WeightMatrix> matrix() const override;
  const at::Tensor& weight() const noexcept { return weight_; }

 private:
  at::Tensor weight_;  // the registered parameter
};

// The activation is cast to the operand dtype, or promoted; the result has the stream's dtype, or the operand's.
std::shared_ptr<Linear> make_linear(LinearWeights weights, const Compute& compute);

// The activation as all of these take it: cast once where they agree, else as it is, for each to cast.
at::Tensor shared_operand(const at::Tensor& input, std::span<const std::shared_ptr<Linear>> consumers);

// The dtype to make an activation in that `consumer` alone reads: the stream's, widened to what it multiplies in, so
// that nothing is rounded or overflows on the way to a product of more range.
std::optional<at::ScalarType> activation_dtype(const Compute& compute, const Linear& consumer);

}  // namespace halfbyte::models
