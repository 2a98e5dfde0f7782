// Text to token ids and back. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models {

using TokenIds = std::vector<std::int64_t>;

// A token and the bytes of the encoded text that it stands for: [begin, end). begin == end: it stands for none of them.
struct TokenSpan {
  std::int64_t id;
  std::size_t begin;
  std::size_t end;
};

// What becomes of a special token's spelling ("</s>", "<|im_end|>") inside a text: the token, as everybody's tokenizers
// do, or the characters, for text that must not steer the model.
enum class SpecialTokens { kParse, kAsText };

// May be called by many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // The text alone, without prefix() and suffix(). Any bytes are accepted; what is not UTF-8 is read as U+FFFD, one for
  // each longest beginning of a character (as Python's errors="replace").
  virtual std::vector<TokenSpan> encode_spans(std::string_view text, SpecialTokens special) const = 0;
  virtual TokenIds encode(std::string_view text, SpecialTokens special = SpecialTokens::kParse) const;
  // Special (control) tokens give nothing when `skip_special`. Errors: kInvalidArgument for an id beyond the
  // vocabulary.
  virtual std::string decode(const TokenIds& ids, bool skip_special = true) const = 0;
  virtual std::string piece(std::int64_t id) const = 0;  // as the vocabulary spells it. Errors: as decode
  virtual bool is_special(std::int64_t id) const = 0;    // may give nothing when decoded. Errors: as decode
  virtual std::optional<std::int64_t> id_of(std::string_view piece) const = 0;
  // What the checkpoint puts before and after a whole text: beginning-of-text, [gMASK] and sop, ...
  virtual const TokenIds& prefix() const = 0;
  virtual const TokenIds& suffix() const = 0;
  virtual std::int64_t vocab_size() const = 0;  // ids are smaller
};

// Special tokens whose names a text spells.
struct SpecialNames {
  std::size_t count = 0;  // of names in the text
  std::string example;    // one of them
};
// `parsed` and `as_text` are one text's tokens, read in the two ways.
SpecialNames special_names(const Tokenizer& tokenizer, const TokenIds& parsed, const TokenIds& as_text);

// The tokenizer of a checkpoint directory, found by its files: tokenizer.json rules over tokenizer.model, which rules
// over vocab.json with merges.txt. Null when there is none of them. Errors: kCorrupt naming the file.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

// Prints a growing text as tokens come: never half a UTF-8 character, and nothing lost at the end.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer, std::vector<std::int64_t> context = {});
  // What became complete by this token; may be empty.
  std::string push(std::int64_t token);
  // What is left, complete or not.
  std::string finish();

 private:
  void shorten_window();
  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> window_;  // tokens that still influence how the next one is decoded
  std::string printed_;               // of the window's text
  std::size_t waited_tokens_ = 0;     // since something was printed
};

// Bytes at the end of `text` that begin a UTF-8 character without finishing it.
std::size_t incomplete_utf8_tail(std::string_view text) noexcept;

}  // namespace halfbyte::models
