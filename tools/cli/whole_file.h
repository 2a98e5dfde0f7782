// Files that are there whole or not at all: what a verb writes beside what it prints.
#pragma once

#include <filesystem>
#include <string_view>

namespace halfbyte::cli {

// Takes the place of an earlier one. Errors: as files::ReplacedFile; kIo for a directory, or where there is none.
void write_whole(const std::filesystem::path& path, std::string_view text);

// Whether that can be, before work that takes long. Errors: as write_whole().
void check_writable(const std::filesystem::path& path);

}  // namespace halfbyte::cli
