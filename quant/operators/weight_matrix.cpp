#include "quant/operators/weight_matrix.h"

#include "quant/operators/torch_dtype.h"

namespace halfbyte::operators {
namespace {

bool is_plain_codes(const at::Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kInt && tensor.is_contiguous() &&
         tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == columns;
}

}  // namespace

quant::WeightMatrix packed_matrix(const PackedOperand& packed) {
  quant::WeightMatrix weight;
  weight.scheme = packed.scheme;
  weight.rows = bytes_of(packed.codes);
  weight.scales = bytes_of(packed.scales);
  weight.scale_dtype = check_floating("low_bit_linear", "scales", packed.scales);
  if (packed.zero_points.defined())
    (packed.scheme->decode == Decode::kOffset ? weight.offsets : weight.zero_points) = bytes_of(packed.zero_points);
  weight.out_features = packed.out_features;
  weight.in_features = packed.in_features;
  weight.group_size = packed.group_size;
  return weight;
}

quant::WeightMatrix dense_matrix(const at::Tensor& weight) {
  quant::WeightMatrix matrix;
  matrix.dense_dtype = check_floating("dense_linear", "weight", weight);
  matrix.rows = bytes_of(weight);
  matrix.out_features = weight.size(0);
  matrix.in_features = weight.size(1);
  return matrix;
}

bool is_plain(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided || !tensor.is_contiguous()) return false;
  const auto dtype = from_torch(tensor.scalar_type());
  return dtype && is_weight_dtype(*dtype);
}

std::optional<quant::WeightMatrix> plain_packed_matrix(const PackedOperand& p) {
  if (!p.scheme || p.group_size < 1 || p.in_features < 1 || p.in_features % p.group_size != 0) return std::nullopt;
  const std::int64_t groups = p.in_features / p.group_size;
  if (!is_plain_codes(p.codes, p.out_features, packed_row_bytes(*p.scheme, p.in_features) / 4)) return std::nullopt;
  if (!is_plain(p.scales) || p.scales.dim() != 2 || p.scales.size(0) != p.out_features || p.scales.size(1) != groups) {
    return std::nullopt;
  }
  const bool has_zeros = p.scheme->decode == Decode::kZeroPoint, has_offsets = p.scheme->decode == Decode::kOffset;
  if (p.zero_points.defined() != (has_zeros || has_offsets)) return std::nullopt;
  if (has_zeros && !is_plain_codes(p.zero_points, zero_point_words(p.out_features), groups)) return std::nullopt;
  if (has_offsets && (!is_plain(p.zero_points) || p.zero_points.scalar_type() != p.scales.scalar_type() ||
                      p.zero_points.sizes() != p.scales.sizes()))
    return std::nullopt;
  return packed_matrix(p);
}

}  // namespace halfbyte::operators
