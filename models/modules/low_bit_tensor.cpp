#include <halfbyte/low_bit_tensor.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>

#include "quant/operators/torch_dtype.h"
#include "quant/operators/translate.h"

namespace halfbyte {
namespace {

constexpr LowBitTensor::Extra kExtras[] = {{Part::kZeroPoint, &LowBitTensor::zero_points, "zero points"},
                                           {Part::kOffset, &LowBitTensor::offsets, "offsets"},
                                           {Part::kRowScale, &LowBitTensor::row_scales, "row scales"},
                                           {Part::kColumnOrder, &LowBitTensor::column_order, "column order"}};

constexpr std::int64_t kFields = 8;  // rows that share a word of zero points

// Those of some rows, eight to a word again. Shapes: words (rows / 8, groups) -> (count / 8, groups), each rounded up.
at::Tensor zero_points_of(const at::Tensor& words, const at::Tensor& indices) {
  const at::Tensor own = words.index_select(0, indices.div(kFields, "floor"));
  const at::Tensor shift = indices.remainder(kFields).mul(4).to(at::kInt).unsqueeze(1);
  const at::Tensor fields = own.bitwise_right_shift(shift).bitwise_and(15);
  const std::int64_t missing = (kFields - indices.size(0) % kFields) % kFields;
  const at::Tensor shifts = at::arange(0, 4 * kFields, 4, fields.options()).view({kFields, 1});
  return at::constant_pad_nd(fields, {0, 0, 0, missing})
      .view({-1, kFields, words.size(1)})
      .bitwise_left_shift(shifts)
      .sum(1, /*keepdim=*/false, at::kInt);
}

}  // namespace

std::span<const LowBitTensor::Extra> LowBitTensor::extras() noexcept { return kExtras; }

std::string LowBitTensor::description() const { return packed_description(*scheme, in_features, group_size); }

std::uint64_t LowBitTensor::size_bytes() const {
  std::size_t total = codes.nbytes() + scales.nbytes();
  for (const Extra& extra : extras()) total += this->*extra.tensor ? (this->*extra.tensor)->nbytes() : 0;
  return static_cast<std::uint64_t>(total);
}

at::Tensor LowBitTensor::dequantize(std::optional<at::ScalarType> type) const {
  const at::ScalarType wanted = type.value_or(dtype);
  // The operator rounds to the weight dtypes; any other is reached through float32, which holds code * scale.
  const auto direct = from_torch(wanted);
  const at::ScalarType first = direct && is_weight_dtype(*direct) ? wanted : at::kFloat;
  at::Tensor values = operators::dequantize(packed(), in_features, first);
  if (column_order) values = at::empty_like(values).index_copy_(1, *column_order, values);
  return values.to(wanted);
}

at::Tensor LowBitTensor::multiply(const at::Tensor& input, const std::optional<at::Tensor>& bias,
                                  std::optional<at::ScalarType> result, quant::Arithmetic arithmetic) const {
  // An input of another shape is for the operator to refuse.
  const bool is_reordered = column_order && input.dim() > 0 && input.size(-1) == in_features;
  const at::Tensor x = is_reordered ? input.index_select(-1, *column_order) : input;
  return operators::low_bit_linear(x, packed(), bias, result, arithmetic);
}

LowBitTensor LowBitTensor::rows(const at::Tensor& indices) const {
  LowBitTensor out = *this;
  out.codes = codes.index_select(0, indices);
  out.scales = scales.index_select(0, indices);
  if (zero_points) out.zero_points = zero_points_of(*zero_points, indices);
  if (offsets) out.offsets = offsets->index_select(0, indices);
  if (row_scales) out.row_scales = row_scales->index_select(0, indices);
  return out;
}

LowBitTensor LowBitTensor::to(at::Device device, bool non_blocking) const {
  return translated([&] { return "moving " + describe({{"codes", codes}}) + " to " + device.str(); },
                    [&] {
                      LowBitTensor moved = *this;
                      moved.codes = codes.to(device, non_blocking);
                      moved.scales = scales.to(device, non_blocking);
                      for (const Extra& extra : extras()) {
                        if (auto& tensor = moved.*extra.tensor) tensor = tensor->to(device, non_blocking);
                      }
                      return moved;
                    });
}

}  // namespace halfbyte
