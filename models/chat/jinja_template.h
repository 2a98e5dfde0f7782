// A checkpoint's own chat template, run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/chat/chat_family.h"
#include "models/chat/conversation.h"
#include "models/chat/jinja/program.h"
#include "models/chat/template_files.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

// What is known of a template before it is given a conversation.
struct JinjaSetting {
  std::vector<NamedToken> tokens;      // special tokens: the template's variables
  HeldOrderedJson arguments = {};      // switches: an object or null
  std::string date = {};               // as ChatChoice has it
  const ChatFamily* family = nullptr;  // that the text is like; null: none
};

class JinjaTemplate {
 public:
  // `templates`: one at least; the first is for conversations without tools, "tool_use" for those with some.
  // Errors: kUnsupported, kInvalidArgument for a date that is none.
  JinjaTemplate(const std::vector<NamedTemplate>& templates, const std::string& where, JinjaSetting setting);

  // Errors: as jinja::Program::run. A system text that the template refuses stands in front of the first user's.
  jinja::Text render(const ChatInput& input) const;
  TokenIds stop_tokens(const Tokenizer& tokenizer) const;
  bool begins_with_line() const noexcept { return setting_.family && setting_.family->begins_with_line; }

 private:
  jinja::Text run(const ChatInput& input) const;
  // The special token that the template puts behind an answer. Nothing: none, or it cannot be told.
  std::optional<std::int64_t> token_behind_answer(const Tokenizer& tokenizer) const;

  jinja::Program program_;
  std::optional<jinja::Program> with_tools_;
  JinjaSetting setting_;
  std::optional<jinja::Date> date_;
};

}  // namespace halfbyte::models
