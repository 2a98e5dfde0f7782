// Buffers that grow to the largest use and are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halfbyte::quant {

// Room for `count` values.
template <class T>
T* at_least(std::vector<T>& buffer, std::int64_t count) {
  if (buffer.size() < static_cast<std::size_t>(count)) buffer.resize(static_cast<std::size_t>(count));
  return buffer.data();
}

}  // namespace halfbyte::quant
