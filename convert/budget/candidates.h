// The ways to store a Linear's weights that a budget chooses from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <halfbyte/convert.h>

namespace halfbyte::convert::budget {

struct Candidate {
  std::string scheme;
  std::int64_t group_size;  // or kPerChannel
};

// Those that the options leave. A scheme that was asked for: it, in all its group sizes or the one asked for, and 8
// bits where the same readers know both. None asked for: of schemes that others read, or with halfbyte_only of ours.
// Errors: kInvalidArgument for an unknown scheme.
std::vector<Candidate> candidates(const QuantizeOptions& options);

}  // namespace halfbyte::convert::budget
