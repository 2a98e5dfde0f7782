// Every instruction-set level that this CPU has.
#pragma once

#include <vector>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::test {

inline std::vector<const kernels::Table*> tables() {
  std::size_t count = 0;
  const kernels::Level* all = kernels::levels(&count);
  std::vector<const kernels::Table*> found;
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i].is_available()) found.push_back(all[i].table());
  }
  return found;
}

// The same, with each number of places that a thread may read in turn, and weights fetched in two ways: a CPU has its
// own.
inline std::vector<kernels::Table> by_streams(const kernels::Table& table) {
  static constexpr kernels::Fetches kFetches[] = {{{16384}, {10240}, {0, true}}, {{4096, true}, {0, true}, {10240}}};
  std::vector<kernels::Table> out(2, table);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].streams = i + 1;
    out[i].fetches = &kFetches[i];
  }
  return out;
}

}  // namespace halfbyte::quant::test
