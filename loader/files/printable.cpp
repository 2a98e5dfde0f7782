#include "loader/files/printable.h"

#include <array>
#include <cstdio>

namespace halfbyte::files {

std::string printable_path(const std::filesystem::path& path) {
  return printable(std::string_view(path.native()), 1024);
}

std::string printable(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

bool is_plain_file_name(std::string_view name) noexcept {
  constexpr std::string_view kForbidden("/\\\0", 3);  // of any system, so that a checkpoint may travel
  return !name.empty() && name != "." && name != ".." && name.find_first_of(kForbidden) == std::string_view::npos;
}

std::string printable_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits{"bytes", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace halfbyte::files
