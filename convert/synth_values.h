// Normally distributed values that depend on nothing but a key and a position. For synth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <halfbyte/dtype.h>

namespace halfbyte::convert {

std::uint64_t value_key(std::uint64_t seed, std::string_view tensor_name) noexcept;

// Values [first, first + out.size() / size_bytes(dtype)) of the tensor with this key, of this standard deviation.
// Threads: OpenMP's; the bytes do not depend on them.
void fill_normal(std::uint64_t key, std::uint64_t first, float deviation, Dtype dtype, std::span<std::byte> out);
void fill_ones(Dtype dtype, std::span<std::byte> out);

}  // namespace halfbyte::convert
