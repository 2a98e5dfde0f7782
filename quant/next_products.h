// What will be multiplied after the products that come next.
#pragma once

#include <span>

#include <halfbyte/linear.h>

namespace halfbyte::quant {

// Threads that have nothing to do fetch the beginning of their parts of these weights (waiting_fetch.h). For few rows
// of input, of which weights are what products wait for.
void fetch_while_waiting(std::span<const Product> products);

}  // namespace halfbyte::quant
