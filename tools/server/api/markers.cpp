#include "tools/server/api/markers.h"

#include <algorithm>

namespace halfbyte::server {

FoundMarker find_marker(std::string_view text, std::span<const std::string_view> markers) {
  FoundMarker out;
  for (std::size_t i = 0; i < markers.size(); ++i) {
    const std::size_t at = text.find(markers[i]);
    if (at < out.begin) out = {at, i};
  }
  return out;
}

std::size_t possible_beginning(std::string_view text, std::span<const std::string_view> markers) {
  std::size_t longest = 0;
  for (const std::string_view marker : markers) {
    std::size_t size = std::min(text.size(), marker.size() - 1);
    while (size > longest && text.substr(text.size() - size) != marker.substr(0, size)) --size;
    longest = std::max(longest, size);
  }
  return longest;
}

}  // namespace halfbyte::server
