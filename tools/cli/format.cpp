#include "tools/cli/format.h"

#include <cmath>
#include <cstdio>

namespace halfbyte::cli {
namespace {

struct Unit {
  double size;
  const char* name;
};

// Gigabytes begin at 0.1 so that a model and its 4-bit copy ("2.20 GB -> 0.64 GB") are in one unit.
std::string scaled(double value, const char* const (&names)[4]) {
  const Unit units[] = {{1e9, names[3]}, {1e6, names[2]}, {1e3, names[1]}};
  for (const Unit& unit : units) {
    if (value < (unit.size == 1e9 ? 0.1e9 : unit.size)) continue;
    const double in_unit = value / unit.size;
    return fixed(in_unit, in_unit < 10 ? 2 : in_unit < 100 ? 1 : 0) + " " + unit.name;
  }
  return fixed(value, 0) + (names[0][0] != '\0' ? std::string(" ") + names[0] : "");
}

}  // namespace

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string human_bytes(std::uint64_t bytes) { return scaled(static_cast<double>(bytes), {"B", "kB", "MB", "GB"}); }

std::string human_count(std::uint64_t count) { return scaled(static_cast<double>(count), {"", "k", "M", "G"}); }

std::string human_seconds(double seconds) {
  if (seconds < 1) return fixed(seconds, 2) + " s";
  if (seconds < 10) return fixed(seconds, 1) + " s";
  if (seconds < 120) return fixed(seconds, 0) + " s";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  const std::string rest = std::to_string(whole % 60);
  return std::to_string(whole / 60) + " min " + (rest.size() == 1 ? "0" : "") + rest + " s";
}

std::string human_shape(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace halfbyte::cli
