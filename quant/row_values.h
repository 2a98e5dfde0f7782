// Parts of rows in any dtype as float32, and back. For quant/*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/gradients.h"
#include "quant/kernels/dtypes.h"
#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

// `count` values from `at` on: where they lie, or in the buffer.
inline const float* loaded_values(const kernels::Table& table, const ConstValues& from, std::int64_t at,
                                  std::int64_t count, float* buffer) {
  const kernels::Float dtype = kernels::to_float(from.dtype);
  const std::byte* data = from.data + static_cast<std::size_t>(at) * kernels::kFloatBytes[dtype];
  if (dtype == kernels::kFloat32) return reinterpret_cast<const float*>(data);
  table.load(dtype, reinterpret_cast<const kernels::Byte*>(data), static_cast<std::size_t>(count), buffer);
  return buffer;
}

// Where values are to be written that store_values then brings to `at`: there, or in the buffer.
inline float* place_of_values(const Values& to, std::int64_t at, float* buffer) {
  return to.dtype == Dtype::kFloat32 ? reinterpret_cast<float*>(to.data) + at : buffer;
}

inline void store_values(const kernels::Table& table, const float* values, std::int64_t count, const Values& to,
                         std::int64_t at) {
  if (to.dtype == Dtype::kFloat32) return;
  const kernels::Float dtype = kernels::to_float(to.dtype);
  std::byte* data = to.data + static_cast<std::size_t>(at) * kernels::kFloatBytes[dtype];
  table.store(dtype, values, static_cast<std::size_t>(count), reinterpret_cast<kernels::Byte*>(data));
}

}  // namespace halfbyte::quant
