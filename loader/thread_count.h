// How many threads LibTorch's operators and halfbyte's kernels run on: OpenMP's pool, which both share. Needs no
// LibTorch.
#pragma once

namespace halfbyte {

int thread_count();
// Precondition: count > 0.
void set_thread_count(int count);

}  // namespace halfbyte
