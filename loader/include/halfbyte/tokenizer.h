// A checkpoint's tokenizer and chat template, for host programs. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/error.h>
#include <halfbyte/generate.h>

namespace halfbyte {

struct ChatTurn {
  std::string role;  // "system" (the first alone), "user" or "assistant"
  std::string text;
};

// What becomes of a special token's spelling ("</s>") in a text: the token, or its characters, for text that must not
// steer the model.
enum class SpecialSpelling { kToken, kText };

// A value; copies share what was read. May be used by many threads at once.
class Tokenizer {
 public:
  // Of a checkpoint in any form that load_low_bit() takes. Errors: kNotFound where it has no tokenizer; kCorrupt.
  explicit Tokenizer(const std::filesystem::path& checkpoint);

  // With what the checkpoint puts before and behind a whole text (beginning-of-text). What is not UTF-8 is read as
  // U+FFFD.
  TokenIds encode(std::string_view text, SpecialSpelling special = SpecialSpelling::kToken) const;
  // Errors: kInvalidArgument for an id that there is not.
  std::string decode(const TokenIds& ids, bool skip_special = true) const;
  std::string piece(std::int64_t id) const;  // as the vocabulary spells it. Errors: as decode()
  std::int64_t vocab_size() const noexcept;  // ids are smaller

  // A conversation as the checkpoint's template has it, up to where the model's answer begins. Special tokens that the
  // texts spell are text. Errors: kUnsupported without a template; kInvalidArgument where it refuses the conversation.
  TokenIds encode_chat(const std::vector<ChatTurn>& turns) const;
  // Tokens that end an answer of a chat, besides config.json's; none without a template.
  TokenIds chat_stop_tokens() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace halfbyte
