// How a byte-level BPE vocabulary splits a text before it merges: GGUF has a name, tokenizer.json the patterns.
#pragma once

#include <span>
#include <string_view>

namespace halfbyte::files {

struct GgufPreTokenizer {
  std::string_view name;                          // tokenizer.ggml.pre
  std::string_view pattern;                       // empty: GPT-2's own, which ByteLevel has
  std::span<const std::string_view> before = {};  // patterns that split first
  bool splits_digits = false;                     // one by one, before GPT-2's own
  bool normalizes_nfc = false;
  bool ignores_merges = false;  // a word that is a token is not split
  bool adds_bos = false;        // where the metadata say nothing
};

// Null: not known.
const GgufPreTokenizer* find_pre_tokenizer(std::string_view name) noexcept;

std::span<const GgufPreTokenizer> pre_tokenizers() noexcept;

}  // namespace halfbyte::files
