#include "models/parallel/slices.h"

#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

namespace halfbyte::models {
namespace {

constexpr std::int64_t kWordBits = 32;
constexpr std::int64_t kRowsOfAWord = 8;  // of zero points
// Of matrices whose columns share a scale, or are dense: kernels read some at a time.
constexpr std::int64_t kColumnStep = 32;

bool is_per_channel(const LowBitTensor& weight) { return weight.group_size == weight.in_features; }

at::Tensor joined(const at::Tensor& tensor, std::span<const Range> ranges) {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(tensor.narrow(0, range.begin, range.size()));
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

LowBitTensor in_place(const LowBitTensor& weight, const Range& range) {
  LowBitTensor out = weight;
  const auto cut = [&](at::Tensor& tensor) { tensor = tensor.narrow(0, range.begin, range.size()); };
  cut(out.codes);
  cut(out.scales);
  if (out.offsets) cut(*out.offsets);
  if (out.row_scales) cut(*out.row_scales);
  if (out.zero_points) {
    const std::int64_t first = range.begin / kRowsOfAWord, end = (range.end + kRowsOfAWord - 1) / kRowsOfAWord;
    out.zero_points = weight.zero_points->narrow(0, first, end - first);
  }
  return out;
}

LowBitTensor rows_of(const LowBitTensor& weight, std::span<const Range> ranges) {
  const bool is_whole_words = !weight.zero_points || ranges[0].begin % kRowsOfAWord == 0;
  if (ranges.size() == 1 && is_whole_words) return in_place(weight, ranges[0]);
  std::vector<at::Tensor> indices;
  for (const Range& range : ranges) indices.push_back(at::arange(range.begin, range.end, at::kLong));
  return weight.rows(at::cat(indices));
}

LowBitTensor columns_of(const LowBitTensor& weight, const Range& range) {
  LowBitTensor out = weight;
  const std::int64_t bits = weight.scheme->bits;
  out.in_features = range.size();
  out.codes = weight.codes.narrow(1, range.begin * bits / kWordBits, range.size() * bits / kWordBits)
                  .clone(at::MemoryFormat::Contiguous);
  if (is_per_channel(weight)) {
    out.group_size = range.size();
    return out;
  }
  const auto cut = [&](const at::Tensor& tensor) {
    return tensor.narrow(1, range.begin / weight.group_size, range.size() / weight.group_size)
        .clone(at::MemoryFormat::Contiguous);
  };
  out.scales = cut(weight.scales);
  if (weight.zero_points) out.zero_points = cut(*weight.zero_points);
  if (weight.offsets) out.offsets = cut(*weight.offsets);
  return out;
}

}  // namespace

LinearWeights rows_of(const LinearWeights& weights, std::span<const Range> ranges) {
  LinearWeights out = weights;
  if (const auto* packed = std::get_if<LowBitTensor>(&weights.weight))
    out.weight = rows_of(*packed, ranges);
  else
    out.weight = joined(std::get<at::Tensor>(weights.weight), ranges);
  if (weights.bias) out.bias = joined(*weights.bias, ranges);
  return out;
}

LinearWeights columns_of(const LinearWeights& weights, const Range& range, bool has_bias) {
  LinearWeights out = weights;
  if (const auto* packed = std::get_if<LowBitTensor>(&weights.weight))
    out.weight = columns_of(*packed, range);
  else
    out.weight =
        std::get<at::Tensor>(weights.weight).narrow(1, range.begin, range.size()).clone(at::MemoryFormat::Contiguous);
  if (!has_bias) out.bias.reset();
  return out;
}

std::int64_t column_step(const LinearWeights& weights) {
  const auto* packed = std::get_if<LowBitTensor>(&weights.weight);
  if (!packed) return 1;
  if (packed->column_order) return 0;
  return is_per_channel(*packed) ? kColumnStep : packed->group_size;
}

std::int64_t columns(const LinearWeights& weights) {
  const auto* packed = std::get_if<LowBitTensor>(&weights.weight);
  return packed ? packed->in_features : std::get<at::Tensor>(weights.weight).size(1);
}

}  // namespace halfbyte::models
