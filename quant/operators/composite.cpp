// The operators on every backend without kernels of ours: plain ATen calls, so that no call can meet a missing kernel.
#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "quant/operators/checks.h"
#include "quant/operators/dense_product.h"
#include "quant/operators/implementations.h"

namespace halfbyte::operators::composite {
namespace {

// Fields of so many bits, the lowest first. Shape: (..., words) -> (..., words, 32 / bits).
at::Tensor fields_of(const at::Tensor& words, int bits) {
  const at::Tensor shifts = at::arange(0, 32, bits, words.options());
  return words.unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and((std::int64_t{1} << bits) - 1);
}

// The values of the codes in float32, in units of the scale. Shape: (out_features, in_features).
at::Tensor unpack(const PackedOperand& packed) {
  const Scheme& scheme = *packed.scheme;
  at::Tensor fields = fields_of(packed.weight.codes, scheme.bits);
  if (scheme.layout == Layout::kBitsandbytes) fields = fields.unflatten(-1, {4, 2}).flip(-1).flatten(-2);
  const at::Tensor rows = fields.flatten(1).narrow(1, 0, packed.in_features);
  if (!scheme.codebook) return rows.sub(scheme.code_offset).to(at::kFloat);
  // The table goes to the codes' device; it is never written to.
  const at::Tensor table = at::from_blob(const_cast<float*>(scheme.codebook->data()), {16}, at::kFloat);
  return table.to(rows.device()).index_select(0, rows.flatten()).view(rows.sizes());
}

// Shape: (out_features, groups), in float32.
at::Tensor zero_points_of(const PackedOperand& packed) {
  const at::Tensor rows =
      fields_of(*packed.weight.zero_points, 4).transpose(1, 2).flatten(0, 1);  // eight rows to a word
  return rows.narrow(0, 0, packed.out_features).sub(packed.scheme->code_offset).to(at::kFloat);
}

// How often each group shifts its code book.
at::Tensor times_of(const PackedOperand& packed) {
  return packed.weight.scales.bitwise_and(largest_shift(*packed.scheme)).to(at::kFloat);
}

// Shape: (out_features, groups), in float32: the rest of the byte times the row's scale, where there is one.
at::Tensor scales_of(const PackedOperand& packed) {
  const at::Tensor& scales = packed.weight.scales;
  if (!packed.weight.row_scales) return scales.to(at::kFloat);
  const std::int64_t shift_values = largest_shift(*packed.scheme) + 1;
  const at::Tensor multiples = scales.to(at::kFloat).sub(times_of(packed)).div(shift_values);
  return multiples.mul(packed.weight.row_scales->to(at::kFloat).unsqueeze(-1));
}

// Weight rows that are dense at once in a sum over rows: a multiple of those that share a word of zero points.
std::int64_t block_rows(std::int64_t in_features) {
  constexpr std::int64_t kBlockValues = std::int64_t{1} << 22, kFields = 8;
  return std::max(kBlockValues / in_features, kFields) / kFields * kFields;
}

// Rows [begin, begin + count) of `packed`; begin as block_rows has it.
PackedOperand rows_of(const PackedOperand& packed, std::int64_t begin, std::int64_t count) {
  const auto of = [&](const at::Tensor& all) { return all.narrow(0, begin, count); };
  PackedOperand out = packed;
  out.out_features = count;
  out.weight.codes = of(packed.weight.codes);
  out.weight.scales = of(packed.weight.scales);
  if (packed.weight.zero_points)
    out.weight.zero_points = packed.weight.zero_points->narrow(0, begin / 8, zero_point_words(count));
  if (packed.weight.offsets) out.weight.offsets = of(*packed.weight.offsets);
  if (packed.weight.row_scales) out.weight.row_scales = of(*packed.weight.row_scales);
  return out;
}

at::Tensor dequantize_checked(const PackedOperand& packed) {
  const std::int64_t groups = packed.in_features / packed.weight.group_size;
  at::Tensor grouped = unpack(packed).reshape({packed.out_features, groups, packed.weight.group_size});
  if (packed.weight.zero_points) grouped = grouped.sub(zero_points_of(packed).unsqueeze(-1));
  if (packed.weight.row_scales) {
    grouped = grouped.add(times_of(packed).mul(packed.scheme->shift).unsqueeze(-1));
  }
  grouped = grouped.mul(scales_of(packed).unsqueeze(-1));
  if (packed.weight.offsets) grouped = grouped.add(packed.weight.offsets->to(at::kFloat).unsqueeze(-1));
  return grouped.view({packed.out_features, packed.in_features});
}

// Shape: (..., n) -> (rows, n); n may be 0.
at::Tensor flat(const at::Tensor& input) { return input.dim() == 1 ? input.unsqueeze(0) : input.flatten(0, -2); }

std::vector<std::int64_t> with_columns(const at::Tensor& input, std::int64_t columns) {
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.back() = columns;
  return shape;
}

// The product in the input's dtype, as the backend's own does it.
at::Tensor multiply(const char* op, const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                    OptionalType out_dtype) {
  check_input(op, input, weight.size(1));
  check_bias(op, bias, weight.size(0), input);
  const at::ScalarType type = out_dtype.value_or(input.scalar_type());
  check_floating(op, "out_dtype", type);
  at::Tensor result =
      dense_product(flat(input), weight.to(input.scalar_type()).t(), type).view(with_columns(input, weight.size(0)));
  if (bias && bias->defined()) result = result.add(bias->to(type));
  return result;
}

}  // namespace

at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                          OptionalType out_dtype, std::string_view arithmetic) {
  constexpr const char* kOp = "low_bit_linear";
  check_arithmetic(kOp, arithmetic);  // a known one; the backend's own product is the only one here
  check_packed_input(kOp, input, weight);
  const PackedOperand packed = check_packed(kOp, weight, input.size(-1));
  check_same_device(kOp, "codes", weight.codes, "input", input);
  return multiply(kOp, input, dequantize_checked(packed), bias, out_dtype);
}

at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& weight, std::int64_t in_features,
                                     OptionalType out_dtype) {
  constexpr const char* kOp = "low_bit_linear_transposed";
  const PackedOperand packed = check_packed(kOp, weight, in_features);
  check_input(kOp, input, packed.out_features);
  check_same_device(kOp, "codes", weight.codes, "input", input);
  const at::ScalarType type = out_dtype.value_or(input.scalar_type());
  check_floating(kOp, "out_dtype", type);
  const at::Tensor rows = flat(input);
  at::Tensor sums = at::zeros({rows.size(0), in_features}, input.options().dtype(at::kFloat));
  for (std::int64_t begin = 0, step = block_rows(in_features); begin < packed.out_features; begin += step) {
    const std::int64_t count = std::min(step, packed.out_features - begin);
    const at::Tensor block = dequantize_checked(rows_of(packed, begin, count)).to(input.scalar_type());
    sums.add_(dense_product(rows.narrow(1, begin, count), block, at::kFloat));
  }
  return sums.to(type).view(with_columns(input, in_features));
}

at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype) {
  constexpr const char* kOp = "dense_linear";
  check_weight(kOp, weight, input);
  return multiply(kOp, input, weight, bias, out_dtype);
}

at::Tensor dequantize(const PackedWeight& weight, std::int64_t in_features, at::ScalarType dtype) {
  constexpr const char* kOp = "dequantize";
  check_floating(kOp, "dtype", dtype);
  const PackedOperand packed = check_packed(kOp, weight, in_features);
  return dequantize_checked(packed).to(dtype);
}

}  // namespace halfbyte::operators::composite
