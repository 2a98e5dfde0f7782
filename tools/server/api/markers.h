// Finds markers in a text that comes piece by piece.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace halfbyte::server {

struct FoundMarker {
  std::size_t begin = std::string_view::npos;  // npos: none is there
  std::size_t marker = 0;                      // which one
};

// The first of them in the text; of those that begin together, the one named first.
FoundMarker find_marker(std::string_view text, std::span<const std::string_view> markers);

// Bytes at the end of `text` that one of them may begin with.
std::size_t possible_beginning(std::string_view text, std::span<const std::string_view> markers);

}  // namespace halfbyte::server
