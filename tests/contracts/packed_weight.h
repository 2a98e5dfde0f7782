// A packed weight matrix of any scheme, made from random values. For tests with LibTorch.
#pragma once

#include "tests/catch.h"

#include <halfbyte/low_bit_tensor.h>
#include <halfbyte/quantize.h>

namespace halfbyte::tests {

inline LowBitTensor packed_weight(const Scheme& scheme, std::int64_t out_features, std::int64_t in_features,
                                  std::int64_t group_size) {
  const at::Tensor dense = at::randn({out_features, in_features});
  LowBitTensor out;
  out.scheme = &scheme;
  out.in_features = in_features;
  out.group_size = group_size;
  out.codes = at::zeros({out_features, packed_row_bytes(scheme, in_features) / 4}, at::kInt);
  out.scales = at::zeros({out_features, in_features / group_size}, has_row_scales(scheme) ? at::kChar : at::kFloat);
  if (has_row_scales(scheme)) out.row_scales = at::zeros({out_features}, at::kBFloat16);
  const at::Tensor offsets = at::zeros_like(out.scales);
  quant::ErrorStats stats;
  std::vector<std::uint8_t> zero_points(static_cast<std::size_t>(out.scales.numel()));
  quant::quantize_rows(
      {static_cast<const std::byte*>(dense.const_data_ptr()), Dtype::kFloat32, out_features, in_features},
      {.scheme = &scheme, .group_size = group_size, .scale_dtype = Dtype::kFloat32},
      {static_cast<std::byte*>(out.codes.mutable_data_ptr()), static_cast<std::byte*>(out.scales.mutable_data_ptr()),
       zero_points.data(), nullptr, static_cast<std::byte*>(offsets.mutable_data_ptr()),
       out.row_scales ? static_cast<std::byte*>(out.row_scales->mutable_data_ptr()) : nullptr},
      stats);
  if (scheme.decode == Decode::kZeroPoint) {
    out.zero_points = at::zeros({zero_point_words(out_features), in_features / group_size}, at::kInt);
    quant::pack_zero_points(zero_points.data(), out_features, in_features / group_size,
                            static_cast<std::uint32_t*>(out.zero_points->mutable_data_ptr()));
  }
  if (scheme.decode == Decode::kOffset) out.offsets = offsets;
  return out;
}

// Largest difference relative to the largest value.
inline double difference(const at::Tensor& found, const at::Tensor& wanted) {
  const at::Tensor a = found.detach().cpu().to(at::kDouble);
  const at::Tensor b = wanted.detach().cpu().to(at::kDouble);
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

// The message of what `call` throws; empty when it throws nothing.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace halfbyte::tests
