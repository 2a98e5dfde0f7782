#include "models/cpu/costs.h"

#include <algorithm>

#include <halfbyte/scheme.h>

namespace halfbyte::models::cpu {
namespace {

std::int64_t bytes_of(const quant::WeightMatrix& weight) noexcept {
  const std::int64_t groups = weight.out_features * weight.groups();
  std::int64_t out = weight.out_features * weight.row_bytes();
  if (weight.scales) out += groups * size_bytes(weight.scale_dtype);
  if (weight.offsets) out += groups * size_bytes(weight.scale_dtype);
  if (weight.zero_points)
    out += zero_point_words(weight.out_features) * weight.groups() * static_cast<std::int64_t>(sizeof(std::int32_t));
  if (weight.row_scales) out += weight.out_features * size_bytes(Dtype::kBfloat16);
  return out;
}

// Of a token's key or value: codes come with a scale in bfloat16.
std::int64_t bytes_of_head(std::int64_t head_dim, Dtype dtype) noexcept {
  return head_dim * size_bytes(dtype) + (dtype == Dtype::kInt8 ? size_bytes(Dtype::kBfloat16) : 0);
}

// The first key that a token after `past` others sees.
std::int64_t first_seen(const quant::Attend& a, std::int64_t past) noexcept {
  if (a.window == 0) return 0;
  return a.is_chunked ? past / a.window * a.window : std::max<std::int64_t>(0, past + 1 - a.window);
}

}  // namespace

WorkCost cost_of(std::span<const quant::Product> products) noexcept {
  WorkCost out;
  for (const auto& [weight, arguments] : products) {
    out.bytes += bytes_of(weight);
    out.flop += 2 * arguments.rows * weight.in_features * weight.out_features;
  }
  return out;
}

WorkCost cost_of_rows(const quant::WeightMatrix& weight, std::int64_t rows) noexcept {
  return {bytes_of(weight) / weight.out_features * rows, 0};
}

WorkCost cost_of(const quant::Attend& a) noexcept {
  WorkCost out;
  for (const quant::SequenceBlocks& sequence : std::span(a.sequences, static_cast<std::size_t>(a.count))) {
    const std::int64_t end = sequence.past + sequence.tokens;
    std::int64_t pairs = 0;
    for (std::int64_t past = sequence.past; past < end; ++past) pairs += past + 1 - first_seen(a, past);
    out.flop += 4 * a.heads * a.head_dim * pairs;
    out.bytes += (end - first_seen(a, sequence.past)) * a.kv_heads *
                 (bytes_of_head(a.head_dim, a.key_dtype) + bytes_of_head(a.head_dim, a.value_dtype));
  }
  return out;
}

}  // namespace halfbyte::models::cpu
