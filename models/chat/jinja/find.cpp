#include "models/chat/jinja/find.h"

#include <cstring>

namespace halfbyte::models::jinja {

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) noexcept {
  if (part.empty()) return from;
  if (from >= text.size()) return std::string_view::npos;
  const char* const begin = text.data() + from;
  const std::size_t left = text.size() - from;
  // Of one byte, AddressSanitizer checks what was looked through, not all that is left: a text has many such parts.
  const void* found =
      part.size() == 1 ? std::memchr(begin, part[0], left) : memmem(begin, left, part.data(), part.size());
  if (!found) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace halfbyte::models::jinja
