// Remembers the tokens of short words, in a fixed number of places: a word takes the place of another with its hash.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "models/tokenizers/huggingface/hash.h"

namespace halfbyte::models::huggingface {

// Bytes [begin, end) of a word.
struct WordToken {
  std::uint32_t id;
  std::uint32_t begin;
  std::uint32_t end;
};

class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 23;
  static constexpr std::size_t kMaxTokens = 6;

  struct Word {
    std::array<std::uint64_t, 3> key;  // the bytes, zeros, and the length
    std::array<std::uint32_t, kMaxTokens> ids;
    std::array<std::uint8_t, kMaxTokens> begins;
    std::array<std::uint8_t, kMaxTokens> ends;
    std::uint8_t count;
    std::uint8_t is_used;
  };

  // The place of a word of at most kMaxBytes; `matches` when it is that word's. The place is valid until the next call.
  struct Place {
    Word* word;
    std::array<std::uint64_t, 3> key;
    bool matches;
  };
  Place find(std::string_view word) {
    if (!words_) words_.reset(static_cast<Word*>(std::calloc(kWords, sizeof(Word))));
    if (!words_) throw std::bad_alloc();
    std::array<std::uint64_t, 3> key{};
    std::memcpy(key.data(), word.data(), word.size());
    key[2] |= std::uint64_t{word.size()} << 56;
    Word* place = &words_.get()[(mixed(key[0] ^ mixed(key[1] + 0x9E3779B97F4A7C15U * key[2]))) % kWords];
    return {place, key, place->is_used != 0 && place->key == key};
  }
  static void store(const Place& place, std::span<const WordToken> tokens) {
    if (tokens.size() > kMaxTokens) return;
    place.word->key = place.key;
    place.word->count = static_cast<std::uint8_t>(tokens.size());
    place.word->is_used = 1;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      place.word->ids[i] = tokens[i].id;
      place.word->begins[i] = static_cast<std::uint8_t>(tokens[i].begin);
      place.word->ends[i] = static_cast<std::uint8_t>(tokens[i].end);
    }
  }

 private:
  static constexpr std::size_t kWords = std::size_t{1} << 15;  // of 64 bytes: 2 MiB, touched as it fills
  struct Free {
    void operator()(Word* words) const { std::free(words); }
  };
  std::unique_ptr<Word, Free> words_;
};
static_assert(sizeof(WordCache::Word) == 64);

}  // namespace halfbyte::models::huggingface
