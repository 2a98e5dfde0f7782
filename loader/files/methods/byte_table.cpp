#include "loader/files/methods/byte_table.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace halfbyte::files {

void ByteTable::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::size_t width = table_.size() / 256;
  std::array<std::byte, 4096> piece{};
  while (count > 0) {
    const std::uint64_t now = std::min<std::uint64_t>(count, piece.size());
    bytes_.read(first, std::span(piece).first(now));
    for (std::size_t i = 0; i < now; ++i, out += width)
      std::memcpy(out, table_.data() + std::to_integer<std::size_t>(piece[i]) * width, width);
    first += now;
    count -= now;
  }
}

}  // namespace halfbyte::files
