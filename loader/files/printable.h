// Names from files as messages show them: hostile ones cannot break a line, colour a terminal or fill the screen.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "models/json/printable.h"

namespace halfbyte::files {

using halfbyte::in_quotes;
using halfbyte::printable;
std::string printable_path(const std::filesystem::path& path);
// "[192, 512]"
std::string printable(std::span<const std::int64_t> shape);
// "2.20 GB". Units: decimal, as disks are sold.
std::string printable_bytes(std::uint64_t bytes);

// A name that stays in the directory it is appended to: no separator, not "." or "..", no zero byte, not empty.
bool is_plain_file_name(std::string_view name) noexcept;

}  // namespace halfbyte::files
