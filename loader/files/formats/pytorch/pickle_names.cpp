#include "loader/files/formats/pytorch/pickle_names.h"

#include <algorithm>
#include <array>

namespace halfbyte::files::pickle {
namespace {

using enum Meaning;

constexpr auto kNames = std::to_array<Name>({
    {"collections", "OrderedDict", kOrderedDict},
    {"torch", "Size", kSize},
    {"torch._utils", "_rebuild_tensor", kTensor},
    {"torch._utils", "_rebuild_tensor_v2", kTensor},
    {"torch._utils", "_rebuild_tensor_v3", kTensorWithDtype},
    {"torch._utils", "_rebuild_parameter", kParameter},
    {"torch", "DoubleStorage", kStorageType, Dtype::kFloat64},
    {"torch", "FloatStorage", kStorageType, Dtype::kFloat32},
    {"torch", "HalfStorage", kStorageType, Dtype::kFloat16},
    {"torch", "BFloat16Storage", kStorageType, Dtype::kBfloat16},
    {"torch", "LongStorage", kStorageType, Dtype::kInt64},
    {"torch", "IntStorage", kStorageType, Dtype::kInt32},
    {"torch", "ShortStorage", kStorageType, Dtype::kInt16},
    {"torch", "CharStorage", kStorageType, Dtype::kInt8},
    {"torch", "ByteStorage", kStorageType, Dtype::kUint8},
    {"torch", "BoolStorage", kStorageType, Dtype::kBool},
    {"torch", "ComplexFloatStorage", kStorageType, Dtype::kComplex64},
    {"torch", "UntypedStorage", kStorageType},
    {"torch.storage", "UntypedStorage", kStorageType},
    {"torch", "float64", kDtype, Dtype::kFloat64},
    {"torch", "float32", kDtype, Dtype::kFloat32},
    {"torch", "float16", kDtype, Dtype::kFloat16},
    {"torch", "bfloat16", kDtype, Dtype::kBfloat16},
    {"torch", "int64", kDtype, Dtype::kInt64},
    {"torch", "int32", kDtype, Dtype::kInt32},
    {"torch", "int16", kDtype, Dtype::kInt16},
    {"torch", "int8", kDtype, Dtype::kInt8},
    {"torch", "uint64", kDtype, Dtype::kUint64},
    {"torch", "uint32", kDtype, Dtype::kUint32},
    {"torch", "uint16", kDtype, Dtype::kUint16},
    {"torch", "uint8", kDtype, Dtype::kUint8},
    {"torch", "bool", kDtype, Dtype::kBool},
    {"torch", "complex64", kDtype, Dtype::kComplex64},
    {"torch", "float8_e4m3fn", kDtype, Dtype::kFloat8E4m3},
    {"torch", "float8_e5m2", kDtype, Dtype::kFloat8E5m2},
    {"torch", "float8_e8m0fnu", kDtype, Dtype::kFloat8E8m0},
    {"torch", "float8_e4m3fnuz", kDtype, Dtype::kFloat8E4m3fnuz},
    {"torch", "float8_e5m2fnuz", kDtype, Dtype::kFloat8E5m2fnuz},
});

}  // namespace

const Name* find_name(std::string_view module, std::string_view name) noexcept {
  const auto row =
      std::ranges::find_if(kNames, [&](const Name& each) { return each.module == module && each.name == name; });
  return row == kNames.end() ? nullptr : &*row;
}

std::int64_t index_of(const Name& name) noexcept { return &name - kNames.data(); }
const Name& name_at(std::int64_t index) noexcept { return kNames[static_cast<std::size_t>(index)]; }

}  // namespace halfbyte::files::pickle
