// A conversation written by a row of the table of families.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/chat_family.h"
#include "models/chat/conversation.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

// A family's row with what a checkpoint's own template says otherwise.
struct FamilyTemplate {
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

  explicit FamilyTemplate(const ChatFamily& family);

  std::string_view name() const noexcept { return family->name; }
  // Ends where the model's answer begins, unless none is asked for. No two texts follow each other.
  std::vector<Segment> render(const Conversation& conversation, bool asks_for_answer = true) const;
  // Tokens that end an answer, besides config.json's; those that the tokenizer has.
  TokenIds stop_tokens(const Tokenizer& tokenizer) const;
};

// The family of a template's text, and what such a text says otherwise; null: none is recognised.
const ChatFamily* recognise_chat_template(std::string_view text);
FamilyTemplate family_template_of(const ChatFamily& family, std::string_view text);

// "llama3, chatml, ...".
std::string chat_family_names();

}  // namespace halfbyte::models
