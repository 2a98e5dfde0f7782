// halfbyte generate CKPT --prompt TEXT [--chat] [--stop TEXT]
#include "tools/text/generate.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/not_finite_error.h>
#include <nlohmann/json.hpp>

#include "models/architectures/model_config.h"
#include "models/chat/answer_stream.h"
#include "models/tokenizers/stop_texts.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/no_tokenizer.h"
#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/text/prompts.h"
#include "tools/text/sampling_options.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

void declare(OptionParser& parser, GenerateWords& words) {
  declare_model(parser, words.model);
  declare_adapters(parser, words.adapters);
  declare_prompts(parser, words.prompts);
  declare_sampling(parser, words.sampling);
  declare_speculation(parser, words.speculation);
  declare_prompt_cache(parser, words.cache);
  GenerateOptions& options = words.sampling.options;
  parser.add_flag("--logprobs", options.logprobs, "with --json: each token's natural log-probability");
  parser.add_flag("--echo", options.echo, "begin with the prompt");
  parser.add_flag("--ignore-eos", options.ignore_eos, "do not stop at the end-of-text token");
}

std::string ids_text(const TokenIds& ids) {
  std::string text;
  for (const std::int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

// One prompt's text as it grows, up to a stop text.
class Stream {
 public:
  // `tokenizer` may be null: then it is a text of ids. `is_shown`: it is written as it comes.
  Stream(const models::Tokenizer* tokenizer, const models::ChatTemplate* chat, const TokenIds& prompt,
         const SamplingWords& sampling, bool is_shown)
      : stops_(sampling.stop_texts), is_shown_(is_shown) {
    const bool echo = sampling.options.echo;
    if (!tokenizer) {
      if (echo) push_ids(prompt);
      return;
    }
    if (chat) {
      answer_.emplace(*tokenizer, chat->begins_with_line());
    } else {
      decoder_.emplace(*tokenizer, prompt);
    }
    if (echo) write(tokenizer->decode(prompt));
  }
  void push(std::int64_t token) {
    if (decoder_ || answer_) {
      write(stops_.push(decoder_ ? decoder_->push(token) : answer_->push(token)));
    } else {
      push_ids({token});
    }
  }
  bool is_ended() const noexcept { return stops_.is_found(); }
  void finish() {
    write(stops_.push(decoder_ ? decoder_->finish() : answer_ ? answer_->finish() : ""));
    write(stops_.finish() + "\n");
  }

 private:
  void write(const std::string& text) const {
    if (!is_shown_ || text.empty()) return;
    const std::string shown = shown_text(text);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }
  void push_ids(const TokenIds& ids) {
    write((is_first_ ? "" : ",") + ids_text(ids));
    is_first_ = false;
  }
  std::optional<models::StreamingDecoder> decoder_;
  std::optional<models::AnswerStream> answer_;
  models::StopTexts stops_;
  bool is_shown_;
  bool is_first_ = true;
};

// Finished texts, which end before a stop text: the prompt, where it is echoed, may have one.
class Texts {
 public:
  Texts(const models::Tokenizer& tokenizer, const std::vector<TokenIds>& prompts, const SamplingWords& sampling)
      : tokenizer_(tokenizer), prompts_(prompts), sampling_(sampling) {}
  std::string of(std::size_t index, const Generation& generation) const {
    std::string text = tokenizer_.decode(generation.tokens);
    if (sampling_.stop_texts.empty()) return text;
    const std::size_t begin = sampling_.options.echo ? tokenizer_.decode(prompts_[index]).size() : 0;
    return models::before_stop_text(text, begin, sampling_.stop_texts);
  }

 private:
  const models::Tokenizer& tokenizer_;
  const std::vector<TokenIds>& prompts_;
  const SamplingWords& sampling_;
};

ordered_json json_of(const std::vector<Generation>& generations, const Texts* texts, bool logprobs) {
  ordered_json list = ordered_json::array();
  for (const Generation& generation : generations) {
    ordered_json item = {{"tokens", generation.tokens}};
    item["cached_tokens"] = generation.cached_tokens;
    item["finish_reason"] = finish_reason_name(generation.finish_reason);
    item["guessed_tokens"] = generation.guessed_tokens;
    item["right_guesses"] = generation.right_guesses;
    item["text"] = texts ? ordered_json(texts->of(list.size(), generation)) : ordered_json(nullptr);
    if (logprobs) {
      item["logprobs"] = ordered_json::array();
      for (const auto& value : generation.logprobs)
        item["logprobs"].push_back(value ? ordered_json(*value) : ordered_json(nullptr));
    }
    list.push_back(std::move(item));
  }
  return {{"generations", std::move(list)}};
}

void print_batch(const std::vector<Generation>& generations, const Texts* texts) {
  for (std::size_t i = 0; i < generations.size(); ++i) {
    const std::string text = texts ? texts->of(i, generations[i]) : ids_text(generations[i].tokens);
    print_line(shown_text("[" + std::to_string(i + 1) + "] " + text));
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

std::string guesses_of(const std::vector<Generation>& generations) {
  std::int64_t guessed = 0, right = 0;
  for (const Generation& generation : generations) {
    guessed += generation.guessed_tokens;
    right += generation.right_guesses;
  }
  return guesses_text(guessed, right);
}

void warn_of_full_context(const std::vector<Generation>& generations, std::int64_t context) {
  for (std::size_t i = 0; i < generations.size(); ++i) {
    if (generations[i].finish_reason != FinishReason::kContext) continue;
    log_warning("prompt " + std::to_string(i + 1) + ": its text ends where the model's context of " +
                std::to_string(context) + " tokens is full, before --max-gen-len");
  }
}

// What ends a text, from the command line, the checkpoint and the template.
void complete_stops(GenerateWords& words, const models::ChatTemplate* chat, const models::Tokenizer* tokenizer) {
  if (!words.sampling.stop_texts.empty() && !tokenizer)
    fail_no_tokenizer(words.model.checkpoint, "without it there is no text to stop at");
  GenerateOptions& options = words.sampling.options;
  if (options.ignore_eos) return;
  const TokenIds stops = stop_tokens_of(words.model.checkpoint, chat, tokenizer);
  options.stop_tokens.insert(options.stop_tokens.end(), stops.begin(), stops.end());
}

// One a prompt where somebody reads along: the user, or who looks for stop texts.
std::vector<Stream> streams_of(const GenerateWords& words, const std::vector<TokenIds>& prompts,
                               const models::Tokenizer* tokenizer, const models::ChatTemplate* chat, bool is_shown) {
  std::vector<Stream> streams;
  if (!is_shown && words.sampling.stop_texts.empty()) return streams;
  for (const TokenIds& prompt : prompts) streams.emplace_back(tokenizer, chat, prompt, words.sampling, is_shown);
  return streams;
}

std::vector<Generation> generated(const TextMaker& model, const std::vector<TokenIds>& prompts,
                                  GenerateOptions& options, std::vector<Stream>& streams, Timing& timing,
                                  bool is_quiet) {
  std::optional<Progress> progress(std::in_place, "prompt", !is_quiet, ProgressUnit::kTokens);
  options.on_prompt = [&](std::int64_t done, std::int64_t total) {
    if (progress) progress->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    if (done == total) progress.reset();
  };
  options.on_token = [&](std::size_t prompt, std::int64_t token) {
    timing.token();
    if (!streams.empty()) streams[prompt].push(token);
    return true;
  };
  options.is_end = [&](std::size_t prompt, std::int64_t) { return !streams.empty() && streams[prompt].is_ended(); };
  return model.generate(prompts, options);
}

void check_cache(const GenerateWords& words) {
  if (words.cache.path.empty()) return;
  if (!words.adapters.empty())
    throw UsageError("--prompt-cache keeps what the model makes of a prompt without --adapter");
  if (prompt_count(words.prompts) > 1) throw UsageError("--prompt-cache keeps one prompt; give one at a time");
}

struct Shown {
  const models::Tokenizer* tokenizer;  // null: there is none
  const std::vector<TokenIds>& prompts;
  bool is_streamed;  // as it came
};

// What was made, and what is said of it.
void report(const GenerateWords& words, const CommonOptions& common, const std::vector<Generation>& generations,
            const Shown& shown, const Timing& timing) {
  std::optional<Texts> texts;
  if (shown.tokenizer) texts.emplace(*shown.tokenizer, shown.prompts, words.sampling);
  const Texts* const all = texts ? &*texts : nullptr;
  if (common.is_json) print_json(json_of(generations, all, words.sampling.options.logprobs));
  if (!common.is_json && !shown.is_streamed) print_batch(generations, all);
  if (!common.is_quiet) std::fprintf(stderr, "%s\n", (timing.line() + guesses_of(generations)).c_str());
  if (!words.cache.path.empty())
    log_info(counted(generations.front().cached_tokens, "token") + " of the prompt came from " +
             printable(words.cache.path));
}

// How a text ended, or why it is for the program that has LibTorch.
struct Made {
  std::optional<ExitStatus> status;  // nothing: it is
  std::string why = {};
  std::exception_ptr lost = {};  // what its modules are to explain; null: nothing was lost
};

Made make_text(GenerateWords& words, const CommonOptions& common, const TextWork& work) {
  InterruptWatch interrupt;  // before OpenMP's threads
  interrupt.end_at_once();
  const std::string& checkpoint = words.model.checkpoint;
  const auto tokenizer =
      std::filesystem::exists(checkpoint) ? tokenizer_of(checkpoint, files::WeightsAre::kOpenedLater) : nullptr;
  OpenedTextMaker opened;
  if (work.may_hand_over) {
    opened = work.open(words, tokenizer.get(), common);
    if (!opened.model) return {std::nullopt, opened.why_not};
  }
  std::optional<models::ChatTemplate> chat;
  if (words.prompts.is_chat) chat = chat_template_of(checkpoint, tokenizer.get(), words.prompts.chat);
  const models::ChatTemplate* const turns = chat ? &*chat : nullptr;
  complete_stops(words, turns, tokenizer.get());
  const bool can_begin_again = !reads_input(words.prompts);
  read_prompts(words.prompts);
  if (!work.may_hand_over) opened = work.open(words, tokenizer.get(), common);
  const std::unique_ptr<TextMaker>& model = opened.model;
  const std::vector<TokenIds> prompts = encode_prompts(words.prompts, checkpoint, tokenizer.get(), turns);
  const bool is_shown = !common.is_json && prompts.size() == 1;
  std::vector<Stream> streams = streams_of(words, prompts, tokenizer.get(), turns, is_shown);
  interrupt.request_only();
  words.sampling.options.stop = interrupt.token();
  Timing timing;
  std::vector<Generation> generations;
  try {
    generations = generated(*model, prompts, words.sampling.options, streams, timing, common.is_quiet);
  } catch (const NotFiniteError&) {
    if (interrupt.token().stop_requested()) return {say_stopped()};
    if (!can_begin_again || (is_shown && timing.tokens > 0)) throw;
    return {std::nullopt, "a value was lost, and modules say which", std::current_exception()};
  }
  if (is_shown) streams.front().finish();
  report(words, common, generations, {tokenizer.get(), prompts, is_shown}, timing);
  warn_of_full_context(generations, model->config().max_position_embeddings);
  model->save();
  return {interrupt.token().stop_requested() ? say_stopped() : ExitStatus::kDone};
}

ExitStatus run(GenerateWords& words, const CommonOptions& common, const TextWork& work) {
  check_prompts(words.prompts);
  check_cache(words);
  const Made made = make_text(words, common, work);
  if (made.status) return *made.status;
  log_info("by LibTorch's modules: " + made.why);
  try {
    return common.run_with_model();
  } catch (const Error& error) {
    if (made.lost) std::rethrow_exception(made.lost);
    throw Error(error.code(), error.text() + "; kernels alone do not run this: " + made.why);
  }
}

}  // namespace

Action prepare_generate_with(OptionParser& parser, const CommonOptions& common, const TextWork& work) {
  const auto words = std::make_shared<GenerateWords>();
  declare(parser, *words);
  return [words, &common, work] { return run(*words, common, work); };
}

}  // namespace halfbyte::cli
