// What will be multiplied after the products that come next.
#pragma once

#include <cstdint>
#include <span>

#include <halfbyte/linear.h>

namespace halfbyte::quant {

// Threads that have nothing to do fetch the beginning of their parts of these weights (waiting_fetch.h), and no more of
// others. For few rows of input, of which weights are what products wait for.
void fetch_while_waiting(std::span<const Product> products, std::int64_t rows);

}  // namespace halfbyte::quant
