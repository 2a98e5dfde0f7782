#include <halfbyte/dtype.h>

#include <algorithm>
#include <array>

namespace halfbyte {
namespace {

using enum Dtype;

// Indexed by Dtype. Source of the safetensors names: safetensors' Dtype enum (safetensors/src/tensor.rs).
constexpr auto kDtypes = std::to_array<DtypeInfo>({
    {kFloat64, "float64", "F64", 64, true},
    {kFloat32, "float32", "F32", 32, true},
    {kFloat16, "float16", "F16", 16, true},
    {kBfloat16, "bfloat16", "BF16", 16, true},
    {kInt64, "int64", "I64", 64, false},
    {kInt32, "int32", "I32", 32, false},
    {kInt16, "int16", "I16", 16, false},
    {kInt8, "int8", "I8", 8, false},
    {kUint64, "uint64", "U64", 64, false},
    {kUint32, "uint32", "U32", 32, false},
    {kUint16, "uint16", "U16", 16, false},
    {kUint8, "uint8", "U8", 8, false},
    {kBool, "bool", "BOOL", 8, false},
    {kComplex64, "complex64", "C64", 64, false},
    {kFloat8E4m3, "float8_e4m3fn", "F8_E4M3", 8, true},
    {kFloat8E5m2, "float8_e5m2", "F8_E5M2", 8, true},
    {kFloat8E8m0, "float8_e8m0fnu", "F8_E8M0", 8, true},
    {kFloat8E4m3fnuz, "float8_e4m3fnuz", "F8_E4M3FNUZ", 8, true},
    {kFloat8E5m2fnuz, "float8_e5m2fnuz", "F8_E5M2FNUZ", 8, true},
    {kFloat6E2m3, "float6_e2m3", "F6_E2M3", 6, true},
    {kFloat6E3m2, "float6_e3m2", "F6_E3M2", 6, true},
    {kFloat4, "float4_e2m1", "F4", 4, true},
});

static_assert([] {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (static_cast<std::size_t>(kDtypes[i].dtype) != i) return false;
  }
  return true;
}());

std::optional<Dtype> find(std::string_view DtypeInfo::*key, std::string_view wanted) noexcept {
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
