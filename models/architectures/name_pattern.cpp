#include "models/architectures/name_pattern.h"

#include <cstddef>

namespace halfbyte::models {
namespace {

bool matches_glob(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last '*' seen, and how much of text it has taken
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool holds_parts(std::string_view parts, std::string_view name) noexcept {
  if (parts.empty()) return name.empty();
  for (auto at = name.find(parts); at != std::string_view::npos; at = name.find(parts, at + 1)) {
    const std::size_t end = at + parts.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) noexcept {
  const bool is_glob = pattern.find_first_of("*?") != std::string_view::npos;
  return is_glob ? matches_glob(pattern, name) : holds_parts(pattern, name);
}

}  // namespace halfbyte::models
