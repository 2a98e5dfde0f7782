// The text as a SentencePiece model splits it: characters replaced by the model's rules, spaces as U+2581.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/allowance.h"
#include "models/tokenizers/sentencepiece/model_file.h"
#include "models/tokenizers/sentencepiece/piece_trie.h"

namespace halfbyte::models::sentencepiece {

inline constexpr std::string_view kSpaceSymbol = "\u2581";

// Bytes of the character that begins `text`, by its first byte alone; at most text.size().
std::size_t character_size(std::string_view text) noexcept;

// Rules that replace sequences of characters, as a double array (Darts) and the texts it points to.
// Source: "precompiled_charsmap" of github.com/google/sentencepiece, github.com/s-yata/darts-clone.
class Charsmap {
 public:
  Charsmap() = default;
  Charsmap(std::string bytes, const std::string& name);  // Errors: kCorrupt naming `name`

  struct Replacement {
    std::size_t size = 0;  // of what is replaced; 0: no rule
    std::string_view text;
  };
  // By the longest rule that begins `text`.
  Replacement find(std::string_view text) const noexcept;

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

// Of text that has been normalised, and where each byte of it comes from.
struct NormalizedText {
  std::string bytes;
  std::vector<std::size_t> origins;  // of each byte and, at the end, of what follows: offsets into the text
};

class Normalizer {
 public:
  Normalizer() = default;
  // `kept`: strings that are taken as they are.
  Normalizer(const NormalizerRules& rules, bool is_whitespace_suffix, PieceTrie kept, const std::string& name);

  // A text in progress: normalised bytes are handed on in parts.
  class Run {
   public:
    // What is added to the text comes out of `allowance`, which outlives the run.
    Run(const Normalizer& normalizer, std::string_view text, bool adds_dummy_prefix, Allowance& allowance);
    bool is_done() const noexcept { return is_done_; }
    // Appends at least `bytes` of normalised text unless the end comes first; at the end, drops trailing spaces from
    // `out`. Errors: kCorrupt naming the model where its rules multiply the text.
    void read(std::size_t bytes, NormalizedText& out);

   private:
    void skip_leading_spaces();
    void take_one(NormalizedText& out);
    void finish(NormalizedText& out);
    void put_space(NormalizedText& out) const;

    const Normalizer& normalizer_;
    std::string_view text_;
    Allowance& allowance_;
    std::size_t consumed_ = 0;
    bool adds_dummy_prefix_;
    bool is_started_ = false;
    bool is_previous_space_;
    bool is_done_ = false;
  };

  bool adds_dummy_prefix() const noexcept { return rules_.add_dummy_prefix; }
  bool removes_extra_spaces() const noexcept { return rules_.remove_extra_whitespaces; }
  std::string normalize(std::string_view text) const;

 private:
  struct Prefix {
    std::string_view text;
    std::size_t size;
  };
  Prefix normalize_prefix(std::string_view text) const noexcept;

  NormalizerRules rules_;
  bool is_whitespace_suffix_ = false;
  PieceTrie kept_;
  std::string rules_name_;  // for errors
  Charsmap charsmap_;
};

}  // namespace halfbyte::models::sentencepiece
