#include "tools/text/prompts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "models/chat/messages.h"
#include "tools/cli/errors.h"
#include "tools/cli/no_tokenizer.h"
#include "tools/cli/option_parser.h"
#include "tools/cli/read_input.h"

namespace halfbyte::cli {
namespace {

TokenIds parse_token_ids(const std::string& list) {
  TokenIds ids;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (true) {
    std::int64_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0)
      throw UsageError("--prompt-tokens: '" + list + "' is not a list of token ids like 1,306,4658");
    ids.push_back(id);
    if (stop == end) return ids;
    if (*stop != ',') throw UsageError("--prompt-tokens: '" + list + "' is not a list of token ids like 1,306,4658");
    at = stop + 1;
  }
}

TokenIds encode_prompt(const models::Tokenizer& tokenizer, const std::string& text) {
  TokenIds ids = tokenizer.prefix();
  const TokenIds own = tokenizer.encode(text);
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

models::ChatInput read_messages(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kNotFound, path + ": cannot be read");
  const auto json = nlohmann::ordered_json::parse(in, nullptr, /*allow_exceptions=*/false);
  auto messages = models::chat_input_of(json);
  if (!messages) {
    throw Error(ErrorCode::kCorrupt,
                path +
                    ": is not a list of {\"role\": \"system\", \"user\" or \"assistant\", \"content\": text}, nor an "
                    "object with such \"messages\"");
  }
  return std::move(*messages);
}

// One line break at the end is the editor's, not the prompt's.
std::string text_of(const std::string& file) {
  std::string text = read_input(file);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace

void declare_prompts(OptionParser& parser, PromptWords& words) {
  parser.add_option("--prompt", words.texts, "text to continue, - for standard input; repeat for a batch")
      .type_name("TEXT")
      .repeatable()
      .as_written();  // or "[a, b]" would be two, without their brackets
  parser
      .add_option("--prompt-file", words.files,
                  "file with a text to continue, without the line break at its end; repeatable")
      .type_name("FILE")
      .repeatable();
  parser.add_option("--prompt-tokens", words.tokens, "token ids to continue, as they are; repeat for a batch")
      .type_name("ID,ID,...")
      .repeatable();
  parser.add_flag("--chat", words.is_chat, "each prompt is a user's turn, written as the model's chat template has it");
  declare_chat(parser, words.chat);
  parser
      .add_option("--messages", words.messages,
                  "with --chat: a conversation to answer, [{\"role\", \"content\"}] in JSON, or an object with "
                  "\"messages\" and \"tools\"; "
                  "repeatable")
      .type_name("FILE")
      .repeatable();
}

std::size_t prompt_count(const PromptWords& words) noexcept {
  return words.texts.size() + words.files.size() + words.tokens.size() + words.messages.size();
}

void check_prompts(const PromptWords& words) {
  const bool has_text = !words.texts.empty() || !words.files.empty() || !words.messages.empty();
  if (!has_text && words.tokens.empty()) {
    throw UsageError(
        "generate needs --prompt TEXT, --prompt-file FILE or --prompt-tokens ID,ID,...; --prompt - reads standard "
        "input");
  }
  if (has_text && !words.tokens.empty()) throw UsageError("give --prompt or --prompt-tokens, not both");
  const auto pipes = std::ranges::count(words.texts, "-") + std::ranges::count(words.files, "-");
  if (pipes > 1) throw UsageError("standard input is one prompt; give - once");
  if (words.is_chat && !words.tokens.empty())
    throw UsageError("--chat writes text as the model's template has it; --prompt-tokens are taken as they are");
  const ChatWords& chat = words.chat;
  const bool needs_chat = chat.system || !chat.choice.name.empty() || !chat.choice.date.empty() ||
                          !chat.arguments.empty() || !words.messages.empty();
  if (needs_chat && !words.is_chat)
    throw UsageError("--system, --chat-template, --chat-argument, --date and --messages go with --chat");
}

bool reads_input(const PromptWords& words) {
  const auto is_stream = [](const std::string& path) {
    std::error_code ignored;
    return !std::filesystem::is_regular_file(path, ignored);
  };
  return std::ranges::find(words.texts, "-") != words.texts.end() || std::ranges::any_of(words.files, is_stream) ||
         std::ranges::any_of(words.messages, is_stream);
}

void read_prompts(PromptWords& words) {
  for (std::string& text : words.texts) {
    if (text == "-") text = text_of(text);
  }
  for (const std::string& file : words.files) words.texts.push_back(text_of(file));
  words.files.clear();
}

std::vector<TokenIds> encode_prompts(const PromptWords& words, const std::string& checkpoint,
                                     const models::Tokenizer* tokenizer, const models::ChatTemplate* chat) {
  std::vector<TokenIds> prompts;
  if (!words.texts.empty() && !tokenizer) fail_no_tokenizer(checkpoint, "or give --prompt-tokens");
  for (const std::string& text : words.texts) {
    prompts.push_back(
        chat ? chat->encode(conversation_of(words.chat.system, {{models::Speaker::kUser, text}}), *tokenizer)
             : encode_prompt(*tokenizer, text));
  }
  for (const std::string& path : words.messages) {
    models::ChatInput input = read_messages(path);
    if (words.chat.system && input.messages->front()["role"] == "system")
      throw UsageError("give the system text by --system or in " + path + ", not both");
    if (words.chat.system) {
      const nlohmann::ordered_json told = {{"role", "system"}, {"content", *words.chat.system}};
      input.messages->insert(input.messages->begin(), told);
    }
    prompts.push_back(chat->encode(input, *tokenizer));
  }
  for (const std::string& list : words.tokens) prompts.push_back(parse_token_ids(list));
  return prompts;
}

}  // namespace halfbyte::cli
