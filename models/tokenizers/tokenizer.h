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

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Without the beginning-of-text token. Any bytes are accepted.
  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
  // Control tokens give nothing. Errors: kInvalidArgument for an id beyond the vocabulary.
  virtual std::string decode(const std::vector<std::int64_t>& ids) const = 0;
  virtual std::optional<std::int64_t> bos() const = 0;  // nothing: prompts begin without one
  virtual std::int64_t vocab_size() const = 0;
};

// The tokenizer of a checkpoint directory, found by its files; null when there is none that this version reads.
// Errors: kCorrupt naming the file.
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
  std::string fresh_text();
  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> window_;  // tokens that still influence how the next one is decoded
  std::size_t printed_bytes_ = 0;     // of the window's text
};

// Bytes at the end of `text` that begin a UTF-8 character without finishing it.
std::size_t incomplete_utf8_tail(std::string_view text) noexcept;

}  // namespace halfbyte::models
