#include "models/json/printable.h"

#include <array>
#include <cstdio>

namespace halfbyte {

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= max_bytes) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
      continue;
    }
    std::array<char, 8> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "\\x%02x", static_cast<unsigned>(byte));
    out += escaped.data();
  }
  return out;
}

std::string in_quotes(std::string_view name) { return '"' + printable(name) + '"'; }

}  // namespace halfbyte
