// Texts that users give as files, or through a pipe.
#pragma once

#include <string>

namespace halfbyte::cli {

// All bytes of a file, or of standard input for "-". Errors: kNotFound, kIo, kNoResources.
std::string read_input(const std::string& file);

}  // namespace halfbyte::cli
