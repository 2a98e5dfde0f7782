#include "models/cpu/damage.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <halfbyte/error.h>

namespace halfbyte::models::cpu {
namespace {

// A number is finite unless all bits of its exponent are set.
template <class Word>
std::int64_t count_full(const FusedValues& values, Word exponent) noexcept {
  std::int64_t out = 0;
  for (std::int64_t i = 0; i < values.count; ++i) {
    Word word;
    std::memcpy(&word, values.data + i * static_cast<std::int64_t>(sizeof word), sizeof word);
    out += (word & exponent) == exponent ? 1 : 0;
  }
  return out;
}

void check(const std::string& name, const FusedValues& values) {
  const std::int64_t count = values.data && is_weight_dtype(values.dtype) ? count_not_finite(values) : 0;
  if (count > 0) fail_damaged(name, count, values.count);
}

void check(const FusedWeight& weight) {
  const quant::WeightMatrix& matrix = weight.matrix;
  if (matrix.scheme) {
    check("the scales of " + weight.name, {matrix.scales, matrix.scale_dtype, matrix.out_features * matrix.groups()});
    check("the row scales of " + weight.name, {matrix.row_scales, Dtype::kBfloat16, matrix.out_features});
  } else if (matrix.rows) {
    check(weight.name, {matrix.rows, matrix.dense_dtype, matrix.out_features * matrix.in_features});
  }
  check(weight.name, weight.values);
  check(weight.bias_name, weight.bias);
}

void check(const FusedWeightSet& weights) {
  weights.for_each([](const FusedWeight& weight) { check(weight); });
}

}  // namespace

std::int64_t count_not_finite(const FusedValues& values) noexcept {
  if (values.dtype == Dtype::kFloat32) return count_full<std::uint32_t>(values, 0x7f800000);
  return count_full<std::uint16_t>(values, values.dtype == Dtype::kFloat16 ? 0x7c00 : 0x7f80);
}

void fail_damaged(const std::string& name, std::int64_t count, std::int64_t all) {
  throw Error(ErrorCode::kCorrupt, name + " holds " + std::to_string(count) + " of " + std::to_string(all) +
                                       " values that are NaN or infinite: the checkpoint's weights are damaged, or "
                                       "were so when they were saved; '" +
                                       Operation::kVerify + "' compares them with their hashes, and " +
                                       Option::kAgainst + " with the original");
}

void check_finite(const FusedWeights& weights) {
  for (const FusedLayer& layer : weights.layers) {
    check(layer.modules);
    for (const FusedWeightSet& expert : layer.experts) check(expert);
  }
  check(weights.modules);
}

}  // namespace halfbyte::models::cpu
