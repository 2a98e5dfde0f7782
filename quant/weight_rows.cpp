// Packed or dense weight rows to float values.
#include "quant/weight_rows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "quant/with_kernels.h"

namespace halfbyte::quant {
namespace {

kernels::Dot dot_for(const WeightMatrix& weight) {
  if (!weight.scheme) {
    constexpr kernels::Dot kDense[] = {kernels::kDotFloat32, kernels::kDotFloat16, kernels::kDotBfloat16};
    return kDense[kernels::to_float(weight.dense_dtype)];
  }
  return weight.scheme->bits == 4 ? kernels::kDotInt4 : kernels::kDotInt8;
}

// Values of one coded row, in natural order.
void unpack_row(const kernels::Table& table, const WeightView& weight, std::size_t row, std::vector<float>& scales,
                float* out) {
  load_scales(table, weight, row, row + 1, scales);
  // The wider levels take 16 values of one scale at a time.
  const bool is_regular = weight.group_size % 16 == 0 || weight.is_channel();
  const kernels::Table& able = is_regular ? table : kernels::kRef;
  able.unpack[weight.dot](weight.row(row), scales.data(), weight.in_features, weight.group_size, out);
}

}  // namespace

WeightView::WeightView(const WeightMatrix& weight)
    : rows(reinterpret_cast<const kernels::Byte*>(weight.rows)),
      row_bytes(static_cast<std::size_t>(weight.row_bytes())),
      scales(reinterpret_cast<const kernels::Byte*>(weight.scales)),
      scale_dtype(weight.scheme ? kernels::to_float(weight.scale_dtype) : kernels::kFloat32),
      dot(dot_for(weight)),
      dense_dtype(weight.scheme ? kernels::kFloat32 : kernels::to_float(weight.dense_dtype)),
      is_coded(weight.scheme != nullptr),
      out_features(static_cast<std::size_t>(weight.out_features)),
      in_features(static_cast<std::size_t>(weight.in_features)),
      group_size(static_cast<std::size_t>(weight.group_size)),
      groups(weight.in_features > 0 ? static_cast<std::size_t>(weight.groups()) : 0) {}

void load_scales(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                 std::vector<float>& scales) {
  const std::size_t count = (end - begin) * weight.groups;
  if (scales.size() < count + kernels::kScalePadding) scales.resize(count + kernels::kScalePadding);
  const std::size_t offset = begin * weight.groups * kernels::kFloatBytes[weight.scale_dtype];
  table.load(weight.scale_dtype, weight.scales + offset, count, scales.data());
  std::fill_n(scales.begin() + static_cast<std::ptrdiff_t>(count), kernels::kScalePadding, 0.0f);
}

void unpack_rows(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                 kernels::Float dtype, kernels::Byte* out, std::vector<float>& scratch) {
  const std::size_t bytes = weight.in_features * kernels::kFloatBytes[dtype];
  thread_local std::vector<float> scales;
  if (scratch.size() < weight.in_features) scratch.resize(weight.in_features);
  for (std::size_t row = begin; row < end; ++row, out += bytes) {
    if (weight.is_coded) {
      unpack_row(table, weight, row, scales, scratch.data());
    } else {
      table.load(weight.dense_dtype, weight.row(row), weight.in_features, scratch.data());
    }
    table.store(dtype, scratch.data(), weight.in_features, out);
  }
}

void dequantize(const kernels::Table& table, const WeightMatrix& weight, std::int64_t row_begin, std::int64_t row_end,
                std::byte* out, Dtype dtype) {
  if (weight.in_features <= 0 || row_begin >= row_end) return;
  const WeightView view(weight);
  const kernels::Float to = kernels::to_float(dtype);
  const std::size_t bytes = view.in_features * kernels::kFloatBytes[to];
  const auto begin = static_cast<std::size_t>(row_begin), end = static_cast<std::size_t>(row_end);
#pragma omp parallel if ((end - begin) * bytes > (1u << 18))
  {
    std::vector<float> scratch;
#pragma omp for schedule(static)
    for (std::size_t row = begin; row < end; ++row) {
      unpack_rows(table, view, row, row + 1, to, reinterpret_cast<kernels::Byte*>(out) + (row - begin) * bytes,
                  scratch);
    }
  }
}

void dequantize(const WeightMatrix& weight, std::int64_t row_begin, std::int64_t row_end, std::byte* out, Dtype dtype) {
  dequantize(kernels::kernels(), weight, row_begin, row_end, out, dtype);
}

}  // namespace halfbyte::quant
