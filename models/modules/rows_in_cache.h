// Several operators over some rows at a time, so that what is between them stays in a core's cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace halfbyte::models {

// Calls work(first, count) for all rows, in pieces that depend on their width alone: so do sums. Threads: LibTorch's.
// No gradients are made in it.
template <class Work>
void for_rows_in_cache(std::int64_t rows, std::int64_t width, const Work& work) {
  constexpr std::int64_t kValues = 16384;
  const std::int64_t step = std::max<std::int64_t>(1, kValues / std::max<std::int64_t>(1, width));
  at::parallel_for(0, (rows + step - 1) / step, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView without_gradients;
    for (std::int64_t piece = begin; piece < end; ++piece) work(piece * step, std::min(step, rows - piece * step));
  });
}

}  // namespace halfbyte::models
