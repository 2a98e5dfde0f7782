// What the verbs that converse ask for, and what they need of a checkpoint besides its weights.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/generate.h>

#include "models/chat/chat_template.h"

namespace halfbyte::cli {

class OptionParser;

struct ChatWords {
  std::optional<std::string> system;
  models::ChatChoice choice;
  std::vector<std::string> arguments;  // "NAME=VALUE"
};

void declare_chat(OptionParser& parser, ChatWords& words);

// Logs the template's name with -v. Errors: kUnsupported without a tokenizer or a template.
models::ChatTemplate chat_template_of(const std::string& checkpoint, const models::Tokenizer* tokenizer,
                                      const ChatWords& words);

// With the system text, if there is one, in front.
models::Conversation conversation_of(const std::optional<std::string>& system, const models::Conversation& turns);

// Where text ends besides config.json's tokens: as generation_config.json and the template say. `chat` may be null.
TokenIds stop_tokens_of(const std::string& checkpoint, const models::ChatTemplate* chat,
                        const models::Tokenizer* tokenizer);

// A checkpoint's files, which may have been given as one of them.
std::filesystem::path directory_of(const std::string& checkpoint);

}  // namespace halfbyte::cli
