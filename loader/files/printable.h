// Names from files as messages show them: hostile ones cannot break a line, colour a terminal or fill the screen.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace halfbyte::files {

// Control characters as \x1b; cut after `max_bytes` (the end is marked "...").
std::string printable(std::string_view text, std::size_t max_bytes = 256);
std::string printable_path(const std::filesystem::path& path);
// printable, in double quotes.
std::string in_quotes(std::string_view name);
// "[192, 512]"
std::string printable(std::span<const std::int64_t> shape);
// "2.20 GB": what people compare with their disk. Units: decimal.
std::string printable_bytes(std::uint64_t bytes);

// A name that stays in the directory it is appended to: no separator, not "." or "..", no zero byte, not empty.
bool is_plain_file_name(std::string_view name) noexcept;

}  // namespace halfbyte::files
