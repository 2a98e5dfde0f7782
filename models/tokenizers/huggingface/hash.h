// Hashing of short keys in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace halfbyte::models::huggingface {

// Mixes all bits of a word into all others. Source: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
inline std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
  x = (x ^ x >> 27) * 0x94D049BB133111EBU;
  return x ^ x >> 31;
}

inline std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = text.size();
  for (; text.size() >= 8; text.remove_prefix(8)) {
    std::uint64_t word;
    std::memcpy(&word, text.data(), 8);
    hash = mixed(hash ^ word);
  }
  std::uint64_t rest = 0;
  if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
  return mixed(hash ^ rest);
}

}  // namespace halfbyte::models::huggingface
