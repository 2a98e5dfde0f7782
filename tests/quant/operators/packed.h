// Random packed weights for the operators, and their distance from others.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <halfbyte/operators.h>
#include <halfbyte/quantize.h>

namespace halfbyte::operators {

struct Packed {
  at::Tensor codes, scales, dense;
  std::optional<at::Tensor> zero_points, offsets, row_scales;
  std::string scheme;
  std::int64_t in_features, group_size;

  PackedWeight weight() const { return {codes, scales, scheme, group_size, zero_points, offsets, row_scales}; }
};

inline Packed pack(std::int64_t out_features, std::int64_t in_features, std::int64_t group_size, const Scheme& scheme) {
  at::manual_seed(1);
  const at::Tensor weight = at::randn({out_features, in_features});
  Packed packed{at::zeros({out_features, packed_row_bytes(scheme, in_features) / 4}, at::kInt),
                at::zeros({out_features, in_features / group_size}, has_row_scales(scheme) ? at::kChar : at::kHalf),
                {},
                {},
                {},
                {},
                std::string(scheme.name),
                in_features,
                group_size};
  const at::Tensor offsets = at::zeros_like(packed.scales), row_scales = at::zeros({out_features}, at::kBFloat16);
  quant::ErrorStats stats;
  std::vector<std::uint8_t> zero_points(static_cast<std::size_t>(packed.scales.numel()));
  quant::quantize_rows(
      {static_cast<const std::byte*>(weight.const_data_ptr()), Dtype::kFloat32, out_features, in_features},
      {.scheme = &scheme, .group_size = group_size, .scale_dtype = Dtype::kFloat16},
      {static_cast<std::byte*>(packed.codes.mutable_data_ptr()),
       static_cast<std::byte*>(packed.scales.mutable_data_ptr()), zero_points.data(), nullptr,
       static_cast<std::byte*>(offsets.mutable_data_ptr()), static_cast<std::byte*>(row_scales.mutable_data_ptr())},
      stats);
  if (scheme.decode == Decode::kZeroPoint) {
    packed.zero_points = at::zeros({zero_point_words(out_features), in_features / group_size}, at::kInt);
    quant::pack_zero_points(zero_points.data(), out_features, in_features / group_size,
                            static_cast<std::uint32_t*>(packed.zero_points->mutable_data_ptr()));
  }
  if (scheme.decode == Decode::kOffset) packed.offsets = offsets;
  if (has_row_scales(scheme)) packed.row_scales = row_scales;
  packed.dense = dequantize(packed.weight(), in_features, at::kFloat);
  return packed;
}

inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() /
         b.to(at::kDouble).abs().max().item<double>();
}

inline const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes = {
    {64, 64}, {192, 64}, {128, 32}, {48, 16}, {172, 172}};

}  // namespace halfbyte::operators
