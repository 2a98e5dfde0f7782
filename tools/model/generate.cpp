// halfbyte generate CKPT --prompt TEXT [--chat]
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/architectures/model_config.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/model/chat_options.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"
#include "tools/model/sampling_options.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

struct Words {
  ModelWords model;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_tokens;
  std::vector<std::string> message_files;
  bool is_chat = false;
  ChatWords chat;
  GenerateOptions options;
};

void declare(OptionParser& parser, Words& words) {
  declare_model(parser, words.model);
  parser.add_option("--prompt", words.prompts, "text to continue; repeat for a batch")
      .type_name("TEXT")
      .repeatable()
      .as_written();  // or "[a, b]" would be two, without their brackets
  parser.add_option("--prompt-tokens", words.prompt_tokens, "token ids to continue, as they are; repeat for a batch")
      .type_name("ID,ID,...")
      .repeatable();
  GenerateOptions& options = words.options;
  parser.add_flag("--chat", words.is_chat, "each prompt is a user's turn, written as the model's chat template has it");
  declare_chat(parser, words.chat);
  parser
      .add_option("--messages", words.message_files,
                  "with --chat: a conversation to answer, [{\"role\", \"content\"}] in JSON; repeatable")
      .type_name("FILE")
      .repeatable();
  declare_sampling(parser, options);
  parser.add_flag("--logprobs", options.logprobs, "with --json: each token's natural log-probability");
  parser.add_flag("--echo", options.echo, "begin with the prompt");
  parser.add_flag("--ignore-eos", options.ignore_eos, "do not stop at the end-of-text token");
}

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

std::optional<models::Speaker> role_of(const std::string& name) {
  if (name == "system") return models::Speaker::kSystem;
  if (name == "user") return models::Speaker::kUser;
  if (name == "assistant") return models::Speaker::kAssistant;
  return std::nullopt;
}

models::Conversation read_messages(const std::string& path) {
  const auto fail = [&] {
    throw Error(ErrorCode::kCorrupt,
                path + ": is not a list of {\"role\": \"system\", \"user\" or \"assistant\", \"content\": text}");
  };
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kNotFound, path + ": cannot be read");
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array() || json.empty()) fail();
  models::Conversation messages;
  for (const auto& item : json) {
    const bool has_both = item.is_object() && item.contains("role") && item.contains("content");
    if (!has_both || !item["role"].is_string() || !item["content"].is_string()) fail();
    const auto role = role_of(item["role"]);
    const bool is_late_system = role == models::Speaker::kSystem && !messages.empty();
    if (!role || is_late_system) fail();
    messages.push_back({*role, item["content"]});
  }
  return messages;
}

void check_words(const Words& words) {
  const bool has_text = !words.prompts.empty() || !words.message_files.empty();
  if (!has_text && words.prompt_tokens.empty())
    throw UsageError("generate needs --prompt TEXT or --prompt-tokens ID,ID,...");
  if (has_text && !words.prompt_tokens.empty()) throw UsageError("give --prompt or --prompt-tokens, not both");
  if (words.is_chat && !words.prompt_tokens.empty())
    throw UsageError("--chat writes text as the model's template has it; --prompt-tokens are taken as they are");
  const ChatWords& chat = words.chat;
  const bool needs_chat =
      chat.system || !chat.choice.name.empty() || !chat.choice.date.empty() || !words.message_files.empty();
  if (needs_chat && !words.is_chat) throw UsageError("--system, --chat-template, --date and --messages go with --chat");
}

// A prompt as the user gave it, for a template or for the tokenizer alone.
std::vector<TokenIds> prompts_of(const Words& words, const models::Tokenizer* tokenizer,
                                 const models::ChatTemplate* chat) {
  std::vector<TokenIds> prompts;
  if (!words.prompts.empty() && !tokenizer) fail_no_tokenizer(words.model.checkpoint, "or give --prompt-tokens");
  for (const std::string& text : words.prompts) {
    prompts.push_back(
        chat ? chat->encode(conversation_of(words.chat.system, {{models::Speaker::kUser, text}}), *tokenizer)
             : encode_prompt(*tokenizer, text));
  }
  for (const std::string& path : words.message_files) {
    const models::Conversation messages = read_messages(path);
    if (words.chat.system && messages.front().role == models::Speaker::kSystem)
      throw UsageError("give the system text by --system or in " + path + ", not both");
    prompts.push_back(chat->encode(conversation_of(words.chat.system, messages), *tokenizer));
  }
  for (const std::string& list : words.prompt_tokens) prompts.push_back(parse_token_ids(list));
  return prompts;
}

void write_out(const std::string& text) {
  const std::string shown = shown_text(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
}

std::string ids_text(const TokenIds& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

// The only prompt of a call, written as it grows.
class Stream {
 public:
  Stream(const models::Tokenizer* tokenizer, const models::ChatTemplate* chat, const TokenIds& prompt, bool echo) {
    if (!tokenizer) {
      if (echo) push_ids(prompt);
      return;
    }
    if (chat) {
      answer_.emplace(*tokenizer, chat->family->begins_with_line);
    } else {
      decoder_.emplace(*tokenizer, prompt);
    }
    if (echo) write_out(tokenizer->decode(prompt));
  }
  void push(std::int64_t token) {
    if (decoder_) {
      write_out(decoder_->push(token));
    } else if (answer_) {
      write_out(answer_->push(token));
    } else {
      push_ids({token});
    }
  }
  void finish() { write_out((decoder_ ? decoder_->finish() : answer_ ? answer_->finish() : "") + "\n"); }

 private:
  void push_ids(const TokenIds& ids) {
    write_out((is_first_ ? "" : ",") + ids_text(ids));
    is_first_ = false;
  }
  std::optional<models::StreamingDecoder> decoder_;
  std::optional<AnswerStream> answer_;
  bool is_first_ = true;
};

ordered_json json_of(const std::vector<Generation>& generations, const models::Tokenizer* tokenizer, bool logprobs) {
  ordered_json list = ordered_json::array();
  for (const Generation& generation : generations) {
    ordered_json item = {{"tokens", generation.tokens}};
    item["finish_reason"] = finish_reason_name(generation.finish_reason);
    item["text"] = tokenizer ? ordered_json(tokenizer->decode(generation.tokens)) : ordered_json(nullptr);
    if (logprobs) {
      item["logprobs"] = ordered_json::array();
      for (const auto& value : generation.logprobs)
        item["logprobs"].push_back(value ? ordered_json(*value) : ordered_json(nullptr));
    }
    list.push_back(std::move(item));
  }
  return {{"generations", std::move(list)}};
}

void print_batch(const std::vector<Generation>& generations, const models::Tokenizer* tokenizer) {
  for (std::size_t i = 0; i < generations.size(); ++i) {
    const TokenIds& tokens = generations[i].tokens;
    write_out("[" + std::to_string(i + 1) + "] " + (tokenizer ? tokenizer->decode(tokens) : ids_text(tokens)) + "\n");
  }
}

struct Timing {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> first;
  Clock::time_point last;
  std::int64_t tokens = 0;

  void token() {
    last = Clock::now();
    if (!first) first = last;
    ++tokens;
  }
  std::string line() const {
    if (!first) return "0 tokens";
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    const double decode = seconds(last - *first);
    std::string text = counted(tokens, "token") + ", the first after " + human_seconds(seconds(*first - start));
    if (tokens > 1 && decode > 0) text += ", then " + fixed(static_cast<double>(tokens - 1) / decode, 1) + " tokens/s";
    return text;
  }
};

void warn_of_full_context(const std::vector<Generation>& generations, std::int64_t context) {
  for (std::size_t i = 0; i < generations.size(); ++i) {
    if (generations[i].finish_reason != FinishReason::kContext) continue;
    log_warning("prompt " + std::to_string(i + 1) + ": its text ends where the model's context of " +
                std::to_string(context) + " tokens is full, before --max-gen-len");
  }
}

ExitStatus run(Words& words, const CommonOptions& common) {
  const auto tokenizer =
      std::filesystem::exists(words.model.checkpoint) ? tokenizer_of(words.model.checkpoint) : nullptr;
  check_words(words);
  const InterruptWatch interrupt;  // before OpenMP's threads
  std::optional<models::ChatTemplate> chat;
  if (words.is_chat) chat = chat_template_of(words.model.checkpoint, tokenizer.get(), words.chat);
  const models::ChatTemplate* const turns = chat ? &*chat : nullptr;
  const Model model = load_model(words.model, common);
  const std::vector<TokenIds> prompts = prompts_of(words, tokenizer.get(), turns);
  GenerateOptions& options = words.options;
  if (!options.ignore_eos) {
    const TokenIds stops = stop_tokens_of(words.model.checkpoint, turns, tokenizer.get());
    options.stop_tokens.insert(options.stop_tokens.end(), stops.begin(), stops.end());
  }
  std::optional<Stream> stream;
  if (!common.is_json && prompts.size() == 1) stream.emplace(tokenizer.get(), turns, prompts.front(), options.echo);
  Timing timing;
  options.stop = interrupt.token();
  options.on_token = [&](std::size_t, std::int64_t token) {
    timing.token();
    if (stream) stream->push(token);
    return true;
  };
  const std::vector<Generation> generations = model.generate(prompts, options);
  if (stream) stream->finish();
  if (common.is_json) print_json(json_of(generations, tokenizer.get(), options.logprobs));
  if (!common.is_json && !stream) print_batch(generations, tokenizer.get());
  warn_of_full_context(generations, model.config().max_position_embeddings);
  if (!common.is_quiet) std::fprintf(stderr, "%s\n", timing.line().c_str());
  return interrupt.token().stop_requested() ? ExitStatus::kInterrupted : ExitStatus::kDone;
}

}  // namespace

Action prepare_generate(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
