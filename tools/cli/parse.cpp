#include "tools/cli/parse.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/cli/habits.h"

namespace halfbyte::cli {
namespace {

struct ByteUnit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"", 1},          {"B", 1},         {"KB", 1'000},    {"MB", 1'000'000},         {"GB", 1'000'000'000},
    {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TB", 1'000'000'000'000}, {"TiB", std::uint64_t{1} << 40},
};

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

std::optional<std::uint64_t> bytes_of(const std::string& text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  auto [unit, code] = std::from_chars(text.data(), end, number);
  if (code != std::errc() || number == 0) return std::nullopt;
  while (unit != end && *unit == ' ') ++unit;
  const auto is_same = [](char a, char b) { return lower(a) == lower(b); };
  for (const ByteUnit& row : kByteUnits) {
    if (!std::equal(unit, end, row.name.begin(), row.name.end(), is_same)) continue;
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / row.bytes) return std::nullopt;
    return number * row.bytes;
  }
  return std::nullopt;
}

constexpr int kMostParts = 65'536;

std::optional<std::pair<int, int>> part_of(const std::string& text) {
  int index = 0, count = 0;
  const char* const end = text.data() + text.size();
  const auto [slash, code] = std::from_chars(text.data(), end, index);
  if (code != std::errc() || slash == end || *slash != '/') return std::nullopt;
  const auto [stop, more] = std::from_chars(slash + 1, end, count);
  if (more != std::errc() || stop != end || index < 1 || index > count || count > kMostParts) return std::nullopt;
  return std::pair(index, count);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Check one_of(std::vector<std::string> names) {
  std::string description = joined(names);
  std::replace(description.begin(), description.end(), ',', '|');
  description.erase(std::remove(description.begin(), description.end(), ' '), description.end());
  const auto check = [names = std::move(names)](std::string& value) -> std::string {
    if (std::find(names.begin(), names.end(), value) != names.end()) return "";
    return "'" + value + "' is not one of " + joined(names) + hint(value, names);
  };
  return {check, description};
}

Check whole_number(std::int64_t smallest, std::int64_t largest) {
  const std::string range = std::to_string(smallest) + " to " + std::to_string(largest);
  const auto check = [=](std::string& value) -> std::string {
    std::int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, number);
    const bool is_good = code == std::errc() && stop == end && number >= smallest && number <= largest;
    return is_good ? "" : "'" + value + "' is not a whole number from " + range;
  };
  return {check};
}

Check number_between(double smallest, double largest) {
  char range[64];
  std::snprintf(range, sizeof range, "%g to %g", smallest, largest);
  const auto check = [=, range = std::string(range)](std::string& value) -> std::string {
    double number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, number);
    const bool is_good = code == std::errc() && stop == end && number >= smallest && number <= largest;
    return is_good ? "" : "'" + value + "' is not a number from " + range;
  };
  return {check};
}

Check byte_size() {
  const auto check = [](std::string& value) -> std::string {
    if (bytes_of(value)) return "";
    const bool has_half_a_unit = bytes_of(value + "iB").has_value();  // 4G
    return "'" + value + "' is not a size; " +
           (has_half_a_unit ? "is " + value + "iB meant, or " + value + "B?"
                            : std::string("sizes are 256MiB, 1GiB, 300MB, 65536"));
  };
  return {check};
}

std::uint64_t parse_bytes(const std::string& text) { return bytes_of(text).value(); }

Check part_of_all() {
  const auto check = [](std::string& value) -> std::string {
    return part_of(value) ? "" : "'" + value + "' is not a part; the four parts of four are 1/4, 2/4, 3/4 and 4/4";
  };
  return {check};
}

std::pair<int, int> parse_part(const std::string& text) { return part_of(text).value(); }

}  // namespace halfbyte::cli
