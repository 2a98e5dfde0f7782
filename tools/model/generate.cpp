// halfbyte generate CKPT --prompt TEXT
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

struct Words {
  ModelWords model;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_tokens;
  std::vector<std::int64_t> stop_tokens;
  GenerateOptions options;
};

void declare(CLI::App& app, Words& words) {
  declare_model(app, words.model);
  app.add_option("--prompt", words.prompts, "text to continue; repeat for a batch")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all();
  app.add_option("--prompt-tokens", words.prompt_tokens, "token ids to continue, as they are; repeat for a batch")
      ->type_name("ID,ID,...")
      ->expected(1)
      ->take_all();
  GenerateOptions& options = words.options;
  app.add_option("--max-gen-len", options.max_gen_len, "most tokens to add")
      ->check(whole_number(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--temperature", options.temperature, "0: always the most likely token")
      ->check(number_between(0, 1000))
      ->capture_default_str();
  app.add_option("--top-p", options.top_p, "sample among the likeliest tokens that make up this probability")
      ->check(number_between(1e-9, 1))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "same seed, same text")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app.add_option("--stop-token", words.stop_tokens, "stop at this token id too; repeatable")
      ->check(whole_number(0, 1'000'000'000))
      ->expected(1)
      ->take_all();
  app.add_flag("--logprobs", options.logprobs, "with --json: each token's natural log-probability");
  app.add_flag("--echo", options.echo, "begin with the prompt");
  app.add_flag("--ignore-eos", options.ignore_eos, "do not stop at the end-of-text token");
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

std::vector<TokenIds> prompts_of(const Words& words, const models::Tokenizer* tokenizer) {
  std::vector<TokenIds> prompts;
  if (!words.prompts.empty() && !tokenizer) {
    throw Error(
        ErrorCode::kUnsupported,
        words.model.checkpoint + ": has no tokenizer.model, the one tokenizer that is read; give --prompt-tokens");
  }
  for (const std::string& text : words.prompts) prompts.push_back(encode_prompt(*tokenizer, text));
  for (const std::string& list : words.prompt_tokens) prompts.push_back(parse_token_ids(list));
  return prompts;
}

void write_out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
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
  Stream(const models::Tokenizer* tokenizer, const TokenIds& prompt, bool echo) {
    if (!tokenizer) {
      if (echo) push_ids(prompt);
      return;
    }
    decoder_.emplace(*tokenizer, prompt);
    if (echo) write_out(tokenizer->decode(prompt));
  }
  void push(std::int64_t token) {
    if (decoder_) {
      write_out(decoder_->push(token));
    } else {
      push_ids({token});
    }
  }
  void finish() { write_out((decoder_ ? decoder_->finish() : "") + "\n"); }

 private:
  void push_ids(const TokenIds& ids) {
    write_out((is_first_ ? "" : ",") + ids_text(ids));
    is_first_ = false;
  }
  std::optional<models::StreamingDecoder> decoder_;
  bool is_first_ = true;
};

ordered_json json_of(const std::vector<Generation>& generations, const models::Tokenizer* tokenizer, bool logprobs) {
  ordered_json list = ordered_json::array();
  for (const Generation& generation : generations) {
    ordered_json item = {{"tokens", generation.tokens}};
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
    print_line("[" + std::to_string(i + 1) + "] " + (tokenizer ? tokenizer->decode(tokens) : ids_text(tokens)));
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

ExitStatus run(Words& words, const CommonOptions& common) {
  const auto tokenizer =
      std::filesystem::exists(words.model.checkpoint) ? tokenizer_of(words.model.checkpoint) : nullptr;
  if (words.prompts.empty() == words.prompt_tokens.empty()) {
    throw UsageError(words.prompts.empty() ? "generate needs --prompt TEXT or --prompt-tokens ID,ID,..."
                                           : "give --prompt or --prompt-tokens, not both");
  }
  const InterruptWatch interrupt;  // before OpenMP's threads
  const Model model = load_model(words.model, common);
  const std::vector<TokenIds> prompts = prompts_of(words, tokenizer.get());
  GenerateOptions& options = words.options;
  options.stop_tokens = words.stop_tokens;
  std::optional<Stream> stream;
  if (!common.is_json && prompts.size() == 1) stream.emplace(tokenizer.get(), prompts.front(), options.echo);
  Timing timing;
  options.on_token = [&](std::size_t, std::int64_t token) {
    timing.token();
    if (stream) stream->push(token);
    return !interrupt.token().stop_requested();
  };
  const std::vector<Generation> generations = model.generate(prompts, options);
  if (stream) stream->finish();
  if (common.is_json) print_json(json_of(generations, tokenizer.get(), options.logprobs));
  if (!common.is_json && !stream) print_batch(generations, tokenizer.get());
  if (!common.is_quiet) std::fprintf(stderr, "%s\n", timing.line().c_str());
  return interrupt.token().stop_requested() ? ExitStatus::kInterrupted : ExitStatus::kDone;
}

}  // namespace

Action prepare_generate(CLI::App& app, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(app, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
