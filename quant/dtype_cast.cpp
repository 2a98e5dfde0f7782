// Casts between the dtypes of weights and activations, and the name of the kernels that do it.
#include <algorithm>
#include <cstring>

#include <halfbyte/linear.h>

#include "quant/kernels/dtypes.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {

void convert(const kernels::Table& table, const std::byte* source, Dtype source_dtype, std::byte* target,
             Dtype target_dtype, std::int64_t count) {
  const kernels::Float from = kernels::to_float(source_dtype), to = kernels::to_float(target_dtype);
  if (count <= 0) return;
  const auto left = static_cast<std::size_t>(count);
  const std::size_t from_bytes = kernels::kFloatBytes[from], to_bytes = kernels::kFloatBytes[to];
  if (from == to) {
    std::memmove(target, source, left * from_bytes);
    return;
  }
  constexpr std::size_t kChunk = 512;
  float chunk[kChunk];
  for (std::size_t i = 0; i < left; i += kChunk) {
    const std::size_t some = std::min(kChunk, left - i);
    table.load(from, reinterpret_cast<const kernels::Byte*>(source) + i * from_bytes, some, chunk);
    table.store(to, chunk, some, reinterpret_cast<kernels::Byte*>(target) + i * to_bytes);
  }
}

void convert(const std::byte* source, Dtype source_dtype, std::byte* target, Dtype target_dtype, std::int64_t count) {
  convert(kernels::kernels(), source, source_dtype, target, target_dtype, count);
}

const char* isa_name() { return kernels::kernels().name; }

}  // namespace halfbyte::quant
