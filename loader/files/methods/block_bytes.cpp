#include "loader/files/methods/block_bytes.h"

#include <algorithm>
#include <vector>

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kBufferBytes = std::uint64_t{1} << 16;  // stays in a first- or second-level cache

}  // namespace

void BlockBytes::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::uint64_t step = std::min(count, std::max<std::uint64_t>(1, kBufferBytes / block_bytes_));
  std::vector<std::byte> blocks(step * block_bytes_);
  for (std::uint64_t at = 0; at < count; at += step) {
    const std::uint64_t here = std::min(step, count - at);
    file_->read(offset_ + (first + at) * block_bytes_, std::span(blocks).first(here * block_bytes_));
    for (std::uint64_t i = 0; i < here; ++i, out += part_.bytes) part_.make(blocks.data() + i * block_bytes_, out);
  }
}

}  // namespace halfbyte::files
