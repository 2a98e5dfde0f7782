// The order of a matrix's rows in another layout.
#pragma once

#include <cstdint>

namespace halfbyte::files {

// Queries' and keys' rows: Hugging Face rotates the first half of a head against the second, Meta (and with it
// llama.cpp's Llama) neighbours. heads == 0: the rows are in place.
struct RowOrder {
  std::int64_t rows = 0;
  std::int64_t heads = 0;

  // Where row `r` of Hugging Face's matrix stands in Meta's.
  std::int64_t source(std::int64_t r) const noexcept {
    if (heads == 0) return r;
    const std::int64_t head = rows / heads, half = head / 2, within = r % head;
    return r - within + (within < half ? 2 * within : 2 * (within - half) + 1);
  }
};

}  // namespace halfbyte::files
