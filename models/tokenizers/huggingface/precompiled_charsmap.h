// SentencePiece's compiled normalization rules: a double-array trie over UTF-8, and the texts that its leaves point to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/huggingface/normalizer.h"

namespace halfbyte::models::huggingface {

// Every index of the trie is checked when it is followed: the map may come from anywhere.
// Source: the unit's layout is Darts-clone's; how it is asked, grapheme by grapheme, is Hugging Face's.
class PrecompiledCharsmap : public Normalizer {
 public:
  // Errors: kCorrupt for what is not base64, a trie longer than the map, or texts that are not UTF-8 or too long.
  PrecompiledCharsmap(std::string_view base64, const std::string& path);
  void apply(ChangingText& text) const override;

 private:
  // What stands for the shortest rule that `text` begins with.
  std::optional<std::string_view> find(std::string_view text) const;
  struct Written {
    char32_t code;
    std::int64_t change;  // as TextRewriter::put takes it
  };
  // Hands on what nothing that follows can change: all but the last.
  static void hand_on(std::vector<Written>& written, TextRewriter& out);
  static void replace(std::string_view old, std::string_view replacement, std::vector<Written>& out);
  void rewrite_char(std::string_view c, std::vector<Written>& out) const;
  void rewrite_grapheme(std::string_view grapheme, std::vector<Written>& out) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero
};

}  // namespace halfbyte::models::huggingface
