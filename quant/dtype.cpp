#include <halfbyte/dtype.h>

#include <algorithm>
#include <array>

namespace halfbyte {
namespace {

using enum Dtype;

// Indexed by Dtype. Source of the safetensors names: safetensors' Dtype enum (safetensors/src/tensor.rs).
constexpr auto kDtypes = std::to_array<DtypeInfo>({
    {.dtype = kFloat64, .name = "float64", .safetensors = "F64", .bits = 64, .is_floating = true},
    {.dtype = kFloat32, .name = "float32", .safetensors = "F32", .bits = 32, .is_floating = true},
    {.dtype = kFloat16, .name = "float16", .safetensors = "F16", .bits = 16, .is_floating = true},
    {.dtype = kBfloat16, .name = "bfloat16", .safetensors = "BF16", .bits = 16, .is_floating = true},
    {.dtype = kInt64, .name = "int64", .safetensors = "I64", .bits = 64, .is_floating = false},
    {.dtype = kInt32, .name = "int32", .safetensors = "I32", .bits = 32, .is_floating = false},
    {.dtype = kInt16, .name = "int16", .safetensors = "I16", .bits = 16, .is_floating = false},
    {.dtype = kInt8, .name = "int8", .safetensors = "I8", .bits = 8, .is_floating = false},
    {.dtype = kUint64, .name = "uint64", .safetensors = "U64", .bits = 64, .is_floating = false},
    {.dtype = kUint32, .name = "uint32", .safetensors = "U32", .bits = 32, .is_floating = false},
    {.dtype = kUint16, .name = "uint16", .safetensors = "U16", .bits = 16, .is_floating = false},
    {.dtype = kUint8, .name = "uint8", .safetensors = "U8", .bits = 8, .is_floating = false},
    {.dtype = kBool, .name = "bool", .safetensors = "BOOL", .bits = 8, .is_floating = false},
    {.dtype = kComplex64, .name = "complex64", .safetensors = "C64", .bits = 64, .is_floating = false},
    {.dtype = kFloat8E4m3, .name = "float8_e4m3fn", .safetensors = "F8_E4M3", .bits = 8, .is_floating = true},
    {.dtype = kFloat8E5m2, .name = "float8_e5m2", .safetensors = "F8_E5M2", .bits = 8, .is_floating = true},
    {.dtype = kFloat8E8m0, .name = "float8_e8m0fnu", .safetensors = "F8_E8M0", .bits = 8, .is_floating = true},
    {.dtype = kFloat8E4m3fnuz, .name = "float8_e4m3fnuz", .safetensors = "F8_E4M3FNUZ", .bits = 8, .is_floating = true},
    {.dtype = kFloat8E5m2fnuz, .name = "float8_e5m2fnuz", .safetensors = "F8_E5M2FNUZ", .bits = 8, .is_floating = true},
    {.dtype = kFloat6E2m3, .name = "float6_e2m3", .safetensors = "F6_E2M3", .bits = 6, .is_floating = true},
    {.dtype = kFloat6E3m2, .name = "float6_e3m2", .safetensors = "F6_E3M2", .bits = 6, .is_floating = true},
    {.dtype = kFloat4, .name = "float4_e2m1", .safetensors = "F4", .bits = 4, .is_floating = true},
});

static_assert([] {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (static_cast<std::size_t>(kDtypes[i].dtype) != i) return false;
  }
  return true;
}());

std::optional<Dtype> find(std::string_view DtypeInfo::* key, std::string_view wanted) noexcept {
  const auto row = std::ranges::find(kDtypes, wanted, key);
  if (row == kDtypes.end()) return std::nullopt;
  return row->dtype;
}

}  // namespace

std::span<const DtypeInfo> dtypes() noexcept { return kDtypes; }
const DtypeInfo& info(Dtype dtype) noexcept { return kDtypes[static_cast<std::size_t>(dtype)]; }
std::optional<Dtype> dtype_from_name(std::string_view name) noexcept { return find(&DtypeInfo::name, name); }
std::optional<Dtype> dtype_from_safetensors(std::string_view name) noexcept {
  return find(&DtypeInfo::safetensors, name);
}

}  // namespace halfbyte
