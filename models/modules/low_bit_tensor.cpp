#include <halfbyte/low_bit_tensor.h>

#include <ATen/ops/empty_like.h>

#include "quant/operators/torch_dtype.h"
#include "quant/operators/translate.h"

namespace halfbyte {
namespace {

constexpr LowBitTensor::Extra kExtras[] = {{Part::kZeroPoint, &LowBitTensor::zero_points, "zero points"},
                                           {Part::kOffset, &LowBitTensor::offsets, "offsets"},
                                           {Part::kRowScale, &LowBitTensor::row_scales, "row scales"},
                                           {Part::kColumnOrder, &LowBitTensor::column_order, "column order"}};

}  // namespace

std::span<const LowBitTensor::Extra> LowBitTensor::extras() noexcept { return kExtras; }

std::string LowBitTensor::description() const {
  if (group_size == in_features) return std::string(scheme->name) + " per channel";
  return std::string(scheme->name) + " g" + std::to_string(group_size);
}

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
