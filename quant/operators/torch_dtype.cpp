#include "quant/operators/torch_dtype.h"

#include <array>

namespace halfbyte {
namespace {

struct Pair {
  Dtype dtype;
  at::ScalarType type;
};

constexpr auto kPairs = std::to_array<Pair>({
    {Dtype::kFloat64, at::kDouble},
    {Dtype::kFloat32, at::kFloat},
    {Dtype::kFloat16, at::kHalf},
    {Dtype::kBfloat16, at::kBFloat16},
    {Dtype::kInt64, at::kLong},
    {Dtype::kInt32, at::kInt},
    {Dtype::kInt16, at::kShort},
    {Dtype::kInt8, at::kChar},
    {Dtype::kUint64, at::kUInt64},
    {Dtype::kUint32, at::kUInt32},
    {Dtype::kUint16, at::kUInt16},
    {Dtype::kUint8, at::kByte},
    {Dtype::kBool, at::kBool},
    {Dtype::kComplex64, at::kComplexFloat},
    {Dtype::kFloat8E4m3, at::kFloat8_e4m3fn},
    {Dtype::kFloat8E5m2, at::kFloat8_e5m2},
    {Dtype::kFloat8E8m0, at::kFloat8_e8m0fnu},
    {Dtype::kFloat8E4m3fnuz, at::kFloat8_e4m3fnuz},
    {Dtype::kFloat8E5m2fnuz, at::kFloat8_e5m2fnuz},
});

}  // namespace

std::optional<at::ScalarType> to_torch(Dtype dtype) noexcept {
  for (const Pair& pair : kPairs) {
    if (pair.dtype == dtype) return pair.type;
  }
  return std::nullopt;
}

std::optional<Dtype> from_torch(at::ScalarType type) noexcept {
  for (const Pair& pair : kPairs) {
    if (pair.type == type) return pair.dtype;
  }
  return std::nullopt;
}

at::ScalarType weight_scalar_type(Dtype dtype) noexcept { return to_torch(dtype).value_or(at::kFloat); }

}  // namespace halfbyte
