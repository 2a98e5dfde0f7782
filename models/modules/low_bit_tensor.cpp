#include <halfbyte/low_bit_tensor.h>

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
  return static_cast<std::uint64_t>(codes.nbytes() + scales.nbytes() + zeros);
}

at::Tensor LowBitTensor::dequantize(std::optional<at::ScalarType> type) const {
  const at::ScalarType wanted = type.value_or(dtype);
  // The operator rounds to the weight dtypes; any other is reached through float32, which holds code * scale.
  const auto direct = from_torch(wanted);
  const at::ScalarType first = direct && is_weight_dtype(*direct) ? wanted : at::kFloat;
  return operators::dequantize(codes, scales, zero_points, scheme->name, in_features, group_size, first).to(wanted);
}

at::Tensor LowBitTensor::multiply(const at::Tensor& input, const std::optional<at::Tensor>& bias,
                                  std::optional<at::ScalarType> result, quant::Arithmetic arithmetic) const {
  return operators::low_bit_linear(input, codes, scales, zero_points, bias, scheme->name, group_size, result,
                                   arithmetic);
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
        return moved;
      });
}

}  // namespace halfbyte
