// Texts that users give as files, or through a pipe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace halfbyte::cli {

// All bytes of a file, or of standard input for "-". Errors: kNotFound, kIo, kNoResources; kInvalidArgument for more
// than `max_bytes`.
std::string read_input(const std::string& file, std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max());

}  // namespace halfbyte::cli
