// Element types a checkpoint can hold, with the names that files and people use. For every folder; needs no LibTorch.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace halfbyte {

enum class Dtype : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBfloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUint64,
  kUint32,
  kUint16,
  kUint8,
  kBool,
  kComplex64,
  kFloat8E4m3,
  kFloat8E5m2,
  kFloat8E8m0,
  kFloat8E4m3fnuz,
  kFloat8E5m2fnuz,
  kFloat6E2m3,
  kFloat6E3m2,
  kFloat4,
};

struct DtypeInfo {
  Dtype dtype;
  std::string_view name;         // "bfloat16": command line, manifest, messages
  std::string_view safetensors;  // "BF16"
  int bits;
  bool is_floating;
};

std::span<const DtypeInfo> dtypes() noexcept;
const DtypeInfo& info(Dtype dtype) noexcept;
inline std::string_view name(Dtype dtype) noexcept { return info(dtype).name; }
inline bool is_floating(Dtype dtype) noexcept { return info(dtype).is_floating; }
// Units: bytes. Only for dtypes of whole bytes; sub-byte ones give 0.
inline std::int64_t size_bytes(Dtype dtype) noexcept { return info(dtype).bits / 8; }
std::optional<Dtype> dtype_from_name(std::string_view name) noexcept;
std::optional<Dtype> dtype_from_safetensors(std::string_view name) noexcept;

// float32, float16 or bfloat16: what quantisation and the low-bit products read.
constexpr bool is_weight_dtype(Dtype dtype) noexcept {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
}

// The largest finite value of such a dtype.
constexpr float largest_value(Dtype dtype) noexcept {
  if (dtype == Dtype::kFloat16) return 65504.0f;
  return dtype == Dtype::kBfloat16 ? 0x1.fep127f : std::numeric_limits<float>::max();
}

}  // namespace halfbyte
