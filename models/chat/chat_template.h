// A conversation as the token ids that a chat model was trained on: transformers' apply_chat_template without its
// template engine. Needs no LibTorch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/chat_family.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

enum class Speaker { kSystem, kUser, kAssistant };

struct Message {
  Speaker role;
  std::string text;
};
using Conversation = std::vector<Message>;  // a system text or none, then user and assistant in turn

// A piece of a rendered conversation: a special token's spelling, or text.
struct Segment {
  std::string text;
  bool is_control = false;
  bool operator==(const Segment&) const = default;
};

// A family's row with what a checkpoint's own template says otherwise.
struct ChatTemplate {
  const ChatFamily* family;
  std::string bos;
  std::string eos;
  std::string date;  // "26 Jul 2024"
  std::string start;
  std::string answer;
  Turn user;
  Turn assistant;
  SystemPlace system_place;
  std::optional<std::string> default_system;
  bool skips_empty = false;         // turns without text
  bool skips_empty_system = false;  // this turn alone

  explicit ChatTemplate(const ChatFamily& family);

  std::string_view name() const noexcept { return family->name; }
  // Ends where the model's answer begins. No two texts follow each other.
  std::vector<Segment> render(const Conversation& conversation) const;
  // Special tokens that the conversation's texts spell are text. Without Tokenizer::prefix(): a template has its own.
  TokenIds encode(const Conversation& conversation, const Tokenizer& tokenizer) const;
  // Tokens that end an answer, besides config.json's; those that the tokenizer has.
  TokenIds stop_tokens(const Tokenizer& tokenizer) const;
};

struct ChatChoice {
  std::string name = {};  // of a family; empty: the checkpoint's own
  std::string date = {};  // for templates that tell the model; empty: as the template has it
};

// The template of a checkpoint directory: by chat_template.jinja, chat_template.json or tokenizer_config.json's
// "chat_template", which are searched for characteristic strings and never run; without them by config.json's
// model_type and the tokenizer's special tokens. Errors: kUnsupported, with the names that are known; kCorrupt for a
// file that is not what it is called.
ChatTemplate load_chat_template(const std::filesystem::path& directory, const Tokenizer& tokenizer,
                                const ChatChoice& choice = {});

// The same, of a template's text; null: none is recognised.
const ChatFamily* recognise_chat_template(std::string_view text);
ChatTemplate chat_template_of(const ChatFamily& family, std::string_view text);

// "llama3, chatml, ...".
std::string chat_family_names();

// generation_config.json's "eos_token_id", one or a list; empty without the file.
// Errors: kCorrupt.
TokenIds generation_stop_tokens(const std::filesystem::path& directory);

}  // namespace halfbyte::models
