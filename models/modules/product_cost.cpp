#include "models/modules/product_cost.h"

#include "models/modules/linear.h"

namespace halfbyte::models {
namespace {

std::int64_t weight_bytes(const Linear& linear) {
  if (const auto* packed = dynamic_cast<const LowBitLinear*>(&linear))
    return static_cast<std::int64_t>(packed->weight().size_bytes());
  const auto* dense = dynamic_cast<const DenseLinear*>(&linear);
  return dense ? static_cast<std::int64_t>(dense->weight().nbytes()) : 0;
}

}  // namespace

WorkCost product_cost(const Linear& linear, const at::Tensor& input) {
  return {weight_bytes(linear), input.defined() ? 2 * input.numel() * linear.out_features() : 0};
}

}  // namespace halfbyte::models
