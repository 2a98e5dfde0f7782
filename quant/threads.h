// The three questions we ask OpenMP. Apart from its header, which Clang's tools do not have where GCC builds.
#pragma once

namespace halfbyte::quant {

int max_threads() noexcept;  // of the next parallel region
int team_size() noexcept;    // of the region that the caller is in
int thread_in_team() noexcept;

}  // namespace halfbyte::quant
