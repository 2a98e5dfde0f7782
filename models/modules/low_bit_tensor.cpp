#include <halfbyte/low_bit_tensor.h>

#include <ATen/ops/empty_like.h>

#include <halfbyte/operators.h>

#include "quant/operators/torch_dtype.h"
#include "quant/operators/translate.h"

namespace halfbyte {

std::string LowBitTensor::description() const {
  if (group_size == in_features) return std::string(scheme->name) + " per channel";
  return std::string(scheme->name) + " g" + std::to_string(group_size);
}

std::uint64_t LowBitTensor::size_bytes() const {
  const std::size_t zeros = zero_points ? zero_points->nbytes() : 0;
  const std::size_t order = column_order ? column_order->nbytes() : 0;
  return static_cast<std::uint64_t>(codes.nbytes() + scales.nbytes() + zeros + order);
}

at::Tensor LowBitTensor::dequantize(std::optional<at::ScalarType> type) const {
  const at::ScalarType wanted = type.value_or(dtype);
  // The operator rounds to the weight dtypes; any other is reached through float32, which holds code * scale.
  const auto direct = from_torch(wanted);
  const at::ScalarType first = direct && is_weight_dtype(*direct) ? wanted : at::kFloat;
  at::Tensor values = operators::dequantize(codes, scales, zero_points, scheme->name, in_features, group_size, first);
  if (column_order) values = at::empty_like(values).index_copy_(1, *column_order, values);
  return values.to(wanted);
}

at::Tensor LowBitTensor::multiply(const at::Tensor& input, const std::optional<at::Tensor>& bias,
                                  std::optional<at::ScalarType> result, quant::Arithmetic arithmetic) const {
  // An input of another shape is for the operator to refuse.
  const bool is_reordered = column_order && input.dim() > 0 && input.size(-1) == in_features;
  const at::Tensor x = is_reordered ? input.index_select(-1, *column_order) : input;
  return operators::low_bit_linear(x, codes, scales, zero_points, bias, scheme->name, group_size, result, arithmetic);
}

LowBitTensor LowBitTensor::to(at::Device device, bool non_blocking) const {
  return translated(
      [&] {
        return "moving " + describe({{"codes", codes}}) + " to " + device.str();
      },
      [&] {
        LowBitTensor moved = *this;
        moved.codes = codes.to(device, non_blocking);
        moved.scales = scales.to(device, non_blocking);
        if (zero_points) moved.zero_points = zero_points->to(device, non_blocking);
        if (column_order) moved.column_order = column_order->to(device, non_blocking);
        return moved;
      });
}

}  // namespace halfbyte
