// A conversation as the token ids that a chat model was trained on: transformers' apply_chat_template. Needs no
// LibTorch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/chat/conversation.h"
#include "models/chat/family_template.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

class JinjaTemplate;

// The checkpoint's own template, or a family's row. A value; may be used by many threads at once.
class ChatTemplate {
 public:
  explicit ChatTemplate(FamilyTemplate family);
  explicit ChatTemplate(std::shared_ptr<const JinjaTemplate> own);

  std::string_view name() const noexcept;  // of the family; "the checkpoint's own"
  bool begins_with_line() const noexcept;  // answers begin with a line break that is no part of them
  // Special tokens that the conversation's texts spell are text. Without Tokenizer::prefix(): a template has its own.
  // Errors: kInvalidArgument where the template refuses the conversation; kUnsupported: tools, documents or switches
  // for a family's row, which knows texts alone, or a template beyond its bounds.
  TokenIds encode(const ChatInput& input, const Tokenizer& tokenizer) const;
  TokenIds encode(const Conversation& conversation, const Tokenizer& tokenizer, bool asks_for_answer = true) const;
  std::vector<Segment> render(const ChatInput& input, const Tokenizer& tokenizer) const;
  std::vector<Segment> render(const Conversation& conversation, const Tokenizer& tokenizer,
                              bool asks_for_answer = true) const;
  // Tokens that end an answer, besides config.json's; those that the tokenizer has.
  TokenIds stop_tokens(const Tokenizer& tokenizer) const;

  const FamilyTemplate* family() const noexcept { return std::get_if<FamilyTemplate>(&kind_); }  // null: it is its own

 private:
  std::variant<FamilyTemplate, std::shared_ptr<const JinjaTemplate>> kind_;
};

struct ChatChoice {
  std::string name = {};  // of a family, instead of the checkpoint's own template; empty: the checkpoint's
  // For templates that tell the model a date; empty: as the template has it, which is today's where it asks for that.
  std::string date = {};
  HeldOrderedJson arguments = {};  // an object: switches for the checkpoint's own template; ChatInput's go before them
};

// The template of a checkpoint directory: the Jinja program in chat_template.jinja, chat_template.json or
// tokenizer_config.json's "chat_template", run within bounds; without one a family's row, by config.json's model_type
// and the tokenizer's special tokens. Errors: kUnsupported, with the names of families that can be said instead;
// kCorrupt for a file that is not what it is called; kInvalidArgument for a choice that makes no sense.
ChatTemplate load_chat_template(const std::filesystem::path& directory, const Tokenizer& tokenizer,
                                const ChatChoice& choice = {});

// generation_config.json's "eos_token_id", one or a list; empty without the file.
// Errors: kCorrupt.
TokenIds generation_stop_tokens(const std::filesystem::path& directory);

}  // namespace halfbyte::models
