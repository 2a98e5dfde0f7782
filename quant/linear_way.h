// How products are computed, for those who divide them among threads themselves.
#pragma once

#include <halfbyte/linear.h>

namespace halfbyte::quant {

// Whether a product is computed by kernels of halfbyte's: within a shared call, by the thread that asks, alone. What
// oneDNN computes wakes OpenMP's threads from each.
bool is_by_own_kernels(const Product& product);

}  // namespace halfbyte::quant
