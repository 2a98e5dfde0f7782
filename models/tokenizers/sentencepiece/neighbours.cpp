#include "models/tokenizers/sentencepiece/neighbours.h"

#include "models/tokenizers/sentencepiece/normalizer.h"

namespace halfbyte::models::sentencepiece {
namespace {

constexpr std::size_t kFirstSize = 1024;

std::uint64_t packed(std::string_view character) noexcept {
  std::uint64_t value = 1;  // never 0
  for (const char c : character) value = value << 8 | static_cast<unsigned char>(c);
  return value & 0xFFFFFFFF;
}

}  // namespace

std::uint64_t Neighbours::key(std::string_view left, std::string_view right) noexcept {
  return packed(left) << 32 | packed(right);
}

std::size_t Neighbours::place_of(std::uint64_t key) const noexcept {
  const std::size_t mask = table_.size() - 1;
  std::size_t place = (key * 0x9E3779B97F4A7C15) >> 20 & mask;
  while (table_[place] != 0 && table_[place] != key) place = (place + 1) & mask;
  return place;
}

void Neighbours::grow() {
  std::vector<std::uint64_t> old(table_.empty() ? kFirstSize : 2 * table_.size());
  old.swap(table_);
  for (const std::uint64_t key : old) {
    if (key != 0) table_[place_of(key)] = key;
  }
}

void Neighbours::add(std::string_view piece) {
  for (std::size_t size = character_size(piece); size < piece.size();) {
    if (2 * count_ >= table_.size()) grow();
    const std::string_view left = piece.substr(0, size);
    piece.remove_prefix(size);
    size = character_size(piece);
    const std::uint64_t wanted = key(left, piece.substr(0, size));
    std::uint64_t& place = table_[place_of(wanted)];
    if (place == 0) ++count_;
    place = wanted;
  }
}

bool Neighbours::contains(std::string_view left, std::string_view right) const noexcept {
  if (table_.empty()) return false;
  return table_[place_of(key(left, right))] != 0;
}

}  // namespace halfbyte::models::sentencepiece
