// What we ask OpenMP. Apart from its header, which Clang's tools do not have where GCC builds.
#pragma once

#include <cstddef>

namespace halfbyte::quant {

int max_threads() noexcept;  // of the next parallel region
void set_max_threads(int count) noexcept;
int team_size() noexcept;  // of the region that the caller is in
int thread_in_team() noexcept;

// Runs `work(context, thread)` once in each of `count` of OpenMP's threads, the caller as thread 0, and returns when
// all have. It must not throw.
void run_in_team(int count, void (*work)(void* context, std::size_t thread), void* context) noexcept;

// Has OpenMP make `count` threads for the caller's regions, if no call had so many made before. Without it a process
// that may have no more threads (ulimit -u) or no memory for them (ulimit -v) is ended by OpenMP in its first region.
// Errors: kNoResources.
void start_threads(int count);
// The same without OpenMP's, which look for work for a while once they are made: for who has none for them. Where there
// is room for both, there will be when they come.
void start_own_threads(int count);

}  // namespace halfbyte::quant
