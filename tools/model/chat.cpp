// halfbyte chat CKPT: a conversation, at a terminal or from a script.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/model/chat_session.h"
#include "tools/model/launched_group.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"
#include "tools/model/prompt_cache_options.h"
#include "tools/model/speculation_options.h"
#include "tools/model/turn_reader.h"
#include "tools/text/chat_options.h"
#include "tools/text/sampling_options.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

struct Words {
  ModelWords model;
  std::vector<std::string> adapters;
  ChatWords chat;
  SamplingWords sampling{.options = {.max_gen_len = 1024}};
  SpeculationWords speculation;
  PromptCacheWords cache;
};

void declare(OptionParser& parser, Words& words) {
  declare_model(parser, words.model);
  declare_adapters(parser, words.adapters);
  declare_chat(parser, words.chat);
  declare_sampling(parser, words.sampling);
  declare_speculation(parser, words.speculation);
  declare_prompt_cache(parser, words.cache);
}

// What is said beside the conversation: on stderr, faint on a terminal.
void note(const std::string& text) {
  const bool is_faint = stderr_is_terminal();
  std::fprintf(stderr, "%s%s%s\n", is_faint ? "\x1b[2m" : "", printable(text).c_str(), is_faint ? "\x1b[0m" : "");
}

class Chat {
 public:
  Chat(ChatSession& session, InterruptWatch& interrupt, const CommonOptions& common, bool is_typed)
      : session_(session), interrupt_(interrupt), common_(common), is_typed_(is_typed) {
    if (is_typed_) editor_.emplace();
  }

  ExitStatus run();

  // Commands; false ends the chat.
  bool help(const std::string& rest);
  bool reset(const std::string& rest);
  bool system(const std::string& rest);
  bool show(const std::string& rest);
  bool leave(const std::string&) { return false; }

 private:
  Line next_line(bool is_more);
  bool take(const Turn& turn);
  bool obey(const Turn& turn);
  void interrupted(const Turn& turn);
  void ask(const std::string& text);
  void answer(const std::string& text);
  void report(const Answer& answer, double seconds);
  void print_object(const Answer& answer, double seconds) const;
  bool is_stopped() const { return !is_typed_ && interrupt_.token().stop_requested(); }

  ChatSession& session_;
  InterruptWatch& interrupt_;
  const CommonOptions& common_;
  bool is_typed_;  // at a terminal
  bool was_empty_interrupt_ = false;
  std::optional<LineEditor> editor_;
};

struct Command {
  std::string_view name;
  std::string_view shown;  // in /help; empty: another name of the one before
  std::string_view meaning;
  bool (Chat::*run)(const std::string& rest);
};
constexpr Command kCommands[] = {
    {.name = "/help", .shown = "/help", .meaning = "this list", .run = &Chat::help},
    {.name = "/reset",
     .shown = "/reset",
     .meaning = "forget the conversation; the system text stays",
     .run = &Chat::reset},
    {.name = "/system",
     .shown = "/system TEXT",
     .meaning = "tell the model this before the first turn; without TEXT nothing",
     .run = &Chat::system},
    {.name = "/history", .shown = "/history", .meaning = "what was said so far", .run = &Chat::show},
    {.name = "/show", .shown = "", .meaning = "", .run = &Chat::show},
    {.name = "/exit", .shown = "/exit", .meaning = "end the chat, as Ctrl-D does", .run = &Chat::leave},
    {.name = "/quit", .shown = "", .meaning = "", .run = &Chat::leave},
};

bool Chat::help(const std::string&) {
  for (const Command& command : kCommands) {
    if (command.shown.empty()) continue;
    note("  " + std::string(command.shown) + std::string(14 - command.shown.size(), ' ') +
         std::string(command.meaning));
  }
  note(
      "A line that ends with \\ goes on in the next; \"\"\" opens and closes a block of lines; // begins a text with "
      "/.");
  note("Ctrl-C stops an answer; what there is of it stays in the conversation.");
  return true;
}

bool Chat::reset(const std::string&) {
  session_.reset();
  if (!common_.is_quiet) note("The conversation is forgotten.");
  return true;
}

bool Chat::system(const std::string& rest) {
  session_.set_system(rest.empty() ? std::nullopt : std::optional(rest));
  if (!common_.is_quiet) note(rest.empty() ? "There is no system text now." : "The system text is set.");
  return true;
}

bool Chat::show(const std::string&) {
  constexpr const char* kNames[] = {"system", "user", "assistant"};
  for (const models::Message& message : session_.conversation())
    std::fprintf(stderr, "%s: %s\n", kNames[static_cast<int>(message.role)], printable_lines(message.text).c_str());
  return true;
}

Line Chat::next_line(bool is_more) {
  if (editor_) {
    Line line = editor_->read(is_more ? "... " : "> ");
    if (line.kind == Line::Kind::kText && !line.text.empty()) editor_->remember(line.text);
    return line;
  }
  std::string text;
  if (is_stopped() || !std::getline(std::cin, text)) return {Line::Kind::kEnd, ""};
  return {Line::Kind::kText, std::move(text)};
}

void Chat::interrupted(const Turn& turn) {
  if (turn.text.empty() && was_empty_interrupt_) note("/exit or Ctrl-D ends the chat.");
  was_empty_interrupt_ = turn.text.empty();
}

bool Chat::obey(const Turn& turn) {
  for (const Command& command : kCommands) {
    if (command.name == turn.text) return (this->*command.run)(turn.rest);
  }
  note("There is no command " + turn.text + "; /help lists those there are, and // begins a text with /.");
  return true;
}

bool Chat::take(const Turn& turn) {
  if (turn.kind != Turn::Kind::kInterrupted) was_empty_interrupt_ = false;
  switch (turn.kind) {
    case Turn::Kind::kEnd:
      return false;
    case Turn::Kind::kInterrupted:
      interrupted(turn);
      return true;
    case Turn::Kind::kCommand:
      return obey(turn);
    case Turn::Kind::kText:
      break;
  }
  ask(turn.text);
  return true;
}

// At a terminal an error ends a turn; in a script, everything.
void Chat::ask(const std::string& text) {
  if (!is_typed_) return answer(text);
  try {
    answer(text);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;  // of ranks that answer together one is gone
    note(said(error));
  }
}

void Chat::print_object(const Answer& answer, double seconds) const {
  const ordered_json object = {{"role", "assistant"},
                               {"text", answer.text},
                               {"tokens", answer.generation.tokens},
                               {"finish_reason", finish_reason_name(answer.generation.finish_reason)},
                               {"prompt_tokens", answer.prompt_tokens},
                               {"cached_tokens", answer.generation.cached_tokens},
                               {"guessed_tokens", answer.generation.guessed_tokens},
                               {"right_guesses", answer.generation.right_guesses},
                               {"dropped_turns", answer.dropped_turns},
                               {"seconds", seconds}};
  print_line(json_text(object));
  std::fflush(stdout);
}

void Chat::report(const Answer& answer, double seconds) {
  if (common_.is_quiet) return;
  const FinishReason reason = answer.generation.finish_reason;
  if (reason == FinishReason::kContext) {
    note("The answer ends here: the model's context of " + std::to_string(session_.context()) +
         " tokens is full. The next turn drops the oldest ones.");
  } else if (reason == FinishReason::kLength) {
    note("The answer ends here: it has --max-gen-len tokens.");
  } else if (reason == FinishReason::kCancelled && answer.text.empty()) {
    note("Stopped before an answer; the turn is taken back.");
  }
  if (common_.verbosity == 0) return;
  const auto tokens = static_cast<std::int64_t>(answer.generation.tokens.size());
  note(counted(answer.prompt_tokens - answer.generation.cached_tokens, "new token") + " read, " +
       counted(answer.generation.cached_tokens, "token") + " kept, " + counted(tokens, "token") + " in " +
       human_seconds(seconds) + ", " + fixed(seconds > 0 ? static_cast<double>(tokens) / seconds : 0, 1) + " tokens/s" +
       guesses_text(answer.generation.guessed_tokens, answer.generation.right_guesses));
}

void Chat::answer(const std::string& text) {
  const auto write = [&](const std::string& piece) {
    if (common_.is_json) return;
    const std::string out = shown_text(piece);
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  };
  const auto drop = [&](std::int64_t turns) {
    if (!common_.is_quiet)
      note("The model's context of " + std::to_string(session_.context()) + " tokens is full: forgot the oldest " +
           counted(turns, "turn") + ".");
  };
  const auto start = std::chrono::steady_clock::now();
  const auto stop = is_typed_ ? interrupt_.renew() : interrupt_.token();
  std::optional<Progress> progress(std::in_place, "prompt", !common_.is_quiet, ProgressUnit::kTokens);
  const auto read = [&](std::int64_t done, std::int64_t total) {
    if (progress) progress->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    if (done == total) progress.reset();
  };
  const Answer answer = session_.ask(text, stop, {.show = write, .dropping = drop, .reading = read});
  progress.reset();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (common_.is_json) {
    print_object(answer, seconds);
  } else {
    write("\n");
  }
  report(answer, seconds);
}

ExitStatus Chat::run() {
  const LineSource lines = [this](bool is_more) { return next_line(is_more); };
  while (!is_stopped() && take(read_turn(lines))) {
  }
  return is_stopped() ? say_stopped() : ExitStatus::kDone;
}

void check_for_ranks(const Words& words) {
  if (!words.adapters.empty())
    refuse_for_ranks("--adapter", "they have parts of the products; merge it first (`halfbyte merge`)");
  if (!words.cache.path.empty()) refuse_for_ranks("--prompt-cache", "they have parts of what its file would hold");
  if (!words.speculation.draft.empty())
    refuse_for_ranks("--draft", "they run one model; --speculate lookup needs no other");
}

ExitStatus run(Words& words, const CommonOptions& common) {
  if (!words.cache.path.empty() && !words.adapters.empty())
    throw UsageError("--prompt-cache keeps what the model makes of a conversation without --adapter");
  check_for_ranks(words);
  if (is_later_rank()) return follow_first_rank(words.model, common);
  const std::string& checkpoint = words.model.checkpoint;
  const auto tokenizer = std::filesystem::exists(checkpoint) ? tokenizer_of(checkpoint) : nullptr;
  InterruptWatch interrupt;  // before OpenMP's threads
  interrupt.end_at_once();
  std::optional<models::ChatTemplate> chat;
  if (std::filesystem::exists(checkpoint)) chat = chat_template_of(checkpoint, tokenizer.get(), words.chat);
  const Model model = load_model(words.model, common);
  std::optional<Leading> leading;
  if (launched_group()) leading.emplace(model.module(), launched_lead());
  const auto adapters = beside(model, words.adapters);
  const TokenIds stops = stop_tokens_of(checkpoint, &*chat, tokenizer.get());
  GenerateOptions& options = words.sampling.options;
  options.stop_tokens.insert(options.stop_tokens.end(), stops.begin(), stops.end());
  const Speculator speculator(words.speculation, words.model, tokenizer.get(), common, options);
  auto file = open_prompt_cache(words.cache, model, PromptCacheFileOptions::Kept::kAll);
  PromptCache own;
  ChatSession session(model, *tokenizer, *chat, words.sampling, file ? file->cache() : own);
  session.set_system(words.chat.system);
  const bool is_typed = stdin_is_terminal();
  if (is_typed && !common.is_quiet)
    note("Chat with " + checkpoint + " (template " + std::string(chat->name()) +
         "). /help lists commands; Ctrl-D ends.");
  if (is_typed) {
    interrupt.renew();
  } else {
    interrupt.request_only();
  }
  const ExitStatus status = Chat(session, interrupt, common, is_typed).run();
  save_prompt_cache(file, words.cache);
  return status;
}

}  // namespace

Action prepare_chat(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
