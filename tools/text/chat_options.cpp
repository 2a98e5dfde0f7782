#include "tools/text/chat_options.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "loader/files/tokenizer_directory.h"
#include "tools/cli/errors.h"
#include "tools/cli/log.h"
#include "tools/cli/no_tokenizer.h"
#include "tools/cli/option_parser.h"
#include "tools/cli/parse.h"

namespace halfbyte::cli {

void declare_chat(OptionParser& parser, ChatWords& words) {
  std::vector<std::string> names;
  for (const models::ChatFamily& family : models::chat_families()) names.emplace_back(family.name);
  parser.add_option("--system", words.system, "what the model is told before the first turn")
      .type_name("TEXT")
      .one_value();
  parser.add_option("--chat-template", words.choice.name, "how turns are written, if not as the checkpoint says")
      .type_name("NAME")
      .check(one_of(names));
  parser.add_option("--date", words.choice.date, "for templates that tell the model one (Llama 3.1 and later)")
      .type_name("'26 Jul 2024'");
  parser
      .add_option("--chat-argument", words.arguments,
                  "a switch of the checkpoint's own chat template, such as enable_thinking=false; repeatable")
      .type_name("NAME=VALUE")
      .repeatable()
      .as_written();
}

namespace {

// Values are JSON where they are any, else texts.
models::HeldOrderedJson arguments_of(const std::vector<std::string>& words) {
  models::HeldOrderedJson out;
  for (const std::string& word : words) {
    const std::size_t sign = word.find('=');
    if (sign == std::string::npos || sign == 0)
      throw UsageError("--chat-argument wants NAME=VALUE, not '" + word + "'");
    const std::string text = word.substr(sign + 1);
    auto value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    (*out)[word.substr(0, sign)] = value.is_discarded() ? nlohmann::ordered_json(text) : std::move(value);
  }
  return out;
}

}  // namespace

models::ChatTemplate chat_template_of(const std::string& checkpoint, const models::Tokenizer* tokenizer,
                                      const ChatWords& words) {
  if (!tokenizer) fail_no_tokenizer(checkpoint, "without it there is no text to chat in");
  // Beside the tokenizer, also where both are made from what a lone file says.
  const files::TokenizerDirectory directory(checkpoint);
  models::ChatChoice choice = words.choice;
  choice.arguments = arguments_of(words.arguments);
  models::ChatTemplate chat = models::load_chat_template(directory.path(), *tokenizer, choice);
  log_info("chat template: " + std::string(chat.name()));
  return chat;
}

models::Conversation conversation_of(const std::optional<std::string>& system, const models::Conversation& turns) {
  models::Conversation all;
  if (system) all.push_back({models::Speaker::kSystem, *system});
  all.insert(all.end(), turns.begin(), turns.end());
  return all;
}

TokenIds stop_tokens_of(const std::string& checkpoint, const models::ChatTemplate* chat,
                        const models::Tokenizer* tokenizer) {
  TokenIds ids = models::generation_stop_tokens(directory_of(checkpoint));
  if (!chat) return ids;
  const TokenIds own = chat->stop_tokens(*tokenizer);
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

std::filesystem::path directory_of(const std::string& checkpoint) {
  const std::filesystem::path path(checkpoint);
  return std::filesystem::is_directory(path) ? path : path.parent_path();
}

}  // namespace halfbyte::cli
