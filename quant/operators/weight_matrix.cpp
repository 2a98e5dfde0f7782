#include "quant/operators/weight_matrix.h"

#include "quant/operators/torch_dtype.h"

namespace halfbyte::operators {
namespace {

bool is_plain_codes(const at::Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kInt && tensor.is_contiguous() &&
         tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == columns;
}

bool is_plain_scales(const PackedOperand& packed) {
  const at::Tensor& scales = packed.weight.scales;
  if (!has_row_scales(*packed.scheme)) return is_plain(scales);
  return scales.defined() && scales.is_cpu() && scales.layout() == at::kStrided && scales.is_contiguous() &&
         scales.scalar_type() == at::kChar;
}

// `rule`: null where the scheme has none, as it must then be.
bool is_plain_extra(const std::optional<at::Tensor>& given, const PartRule* rule, const PackedOperand& packed) {
  if (!rule || !given) return !rule && !given;
  const at::Tensor& tensor = *given;
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         tensor.scalar_type() == type_of(*rule, packed) && tensor.sizes() == shape_of(*rule, packed);
}

}  // namespace

quant::WeightMatrix packed_matrix(const PackedOperand& packed) {
  quant::WeightMatrix weight;
  weight.scheme = packed.scheme;
  weight.rows = bytes_of(packed.weight.codes);
  weight.scales = bytes_of(packed.weight.scales);
  weight.scale_dtype = *from_torch(packed.weight.scales.scalar_type());
  for (const PackedWeight::Extra& extra : PackedWeight::extras()) {
    const auto& tensor = packed.weight.*extra.tensor;
    if (tensor) weight.*quant::operand_of(extra.part) = bytes_of(*tensor);
  }
  weight.out_features = packed.out_features;
  weight.in_features = packed.in_features;
  weight.group_size = packed.weight.group_size;
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

std::optional<quant::WeightMatrix> plain_dense_matrix(const at::Tensor& weight) {
  if (!is_plain(weight) || weight.dim() != 2) return std::nullopt;
  return dense_matrix(weight);
}

std::optional<quant::WeightMatrix> plain_packed_matrix(const PackedOperand& p) {
  if (!p.scheme || p.weight.group_size < 1 || p.in_features < 1 || p.in_features % p.weight.group_size != 0)
    return std::nullopt;
  const std::int64_t groups = p.in_features / p.weight.group_size;
  if (!is_plain_codes(p.weight.codes, p.out_features, packed_row_bytes(*p.scheme, p.in_features) / 4))
    return std::nullopt;
  if (!is_plain_scales(p) || p.weight.scales.dim() != 2 || p.weight.scales.size(0) != p.out_features ||
      p.weight.scales.size(1) != groups) {
    return std::nullopt;
  }
  for (const PackedWeight::Extra& extra : PackedWeight::extras()) {
    if (!is_plain_extra(p.weight.*extra.tensor, find_part(*p.scheme, extra.part), p)) return std::nullopt;
  }
  return packed_matrix(p);
}

}  // namespace halfbyte::operators
