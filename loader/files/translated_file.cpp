#include "loader/files/translated_file.h"

#include <algorithm>

namespace halfbyte::files {

// The whole units of the range go straight to `out`; those that it cuts pass through one of their own.
void UnitBytes::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (out.empty()) return;
  std::vector<std::byte> cut;
  std::uint64_t at = begin;
  const std::uint64_t end = begin + out.size();
  while (at < end) {
    const std::uint64_t unit = at / unit_bytes_, within = at % unit_bytes_;
    if (const std::uint64_t whole = (end - at) / unit_bytes_; within == 0 && whole > 0) {
      read_units(unit, whole, out.data() + (at - begin));
      at += whole * unit_bytes_;
      continue;
    }
    cut.resize(unit_bytes_);
    read_units(unit, 1, cut.data());
    const std::uint64_t count = std::min(unit_bytes_ - within, end - at);
    std::copy_n(cut.data() + within, count, out.data() + (at - begin));
    at += count;
  }
}

void ConstantBytes::read(std::uint64_t begin, std::span<std::byte> out) const {
  std::copy_n(bytes_.data() + begin, out.size(), out.data());
}

std::uint64_t TranslatedFile::add(std::unique_ptr<TensorBytes> bytes) {
  const std::uint64_t offset = size_bytes_;
  size_bytes_ += bytes->size_bytes();
  parts_.push_back({offset, std::move(bytes)});
  return offset;
}

void TranslatedFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  auto part = std::ranges::upper_bound(parts_, offset, {}, &Part::offset);
  while (!out.empty()) {
    const Part& from = *std::prev(part);
    const std::uint64_t within = offset - from.offset;
    const std::uint64_t count = std::min<std::uint64_t>(out.size(), from.bytes->size_bytes() - within);
    from.bytes->read(within, out.first(count));
    out = out.subspan(count);
    offset += count;
    ++part;
  }
}

}  // namespace halfbyte::files
