#include "models/json/printable.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace halfbyte {
namespace {

bool is_control(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes && std::ranges::none_of(text, is_control)) return std::string(text);  // nearly always
  std::string out;
  for (const char c : text) {
    if (out.size() >= max_bytes) return out + "...";
    if (!is_control(c)) {
      out += c;
      continue;
    }
    std::array<char, 8> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += escaped.data();
  }
  return out;
}

std::string in_quotes(std::string_view name) { return '"' + printable(name) + '"'; }

}  // namespace halfbyte
