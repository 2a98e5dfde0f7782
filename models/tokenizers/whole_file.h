// Files beside a model's weights that are read at once: tokenizers, templates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace halfbyte::models {

// All bytes of a file. Errors: kCorrupt where it is no regular file or has more than `max_bytes`; kIo.
std::string read_whole_file(const std::filesystem::path& path, std::uintmax_t max_bytes);

}  // namespace halfbyte::models
