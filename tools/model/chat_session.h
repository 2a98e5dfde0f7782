// A conversation with a model: its turns, and the model's keys and values of them, kept from turn to turn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>

#include "models/chat/chat_template.h"
#include "tools/text/sampling_options.h"

namespace halfbyte::cli {

struct Answer {
  std::string text;
  Generation generation;
  std::int64_t prompt_tokens = 0;
  std::int64_t dropped_turns = 0;  // of the user's, with their answers: the oldest, which the context had no room for
};

// Who looks on while an answer is made.
struct AnswerWatch {
  std::function<void(const std::string& piece)> show;  // the answer as it comes, whole characters only
  std::function<void(std::int64_t turns)> dropping;    // before the answer, when turns must go
  std::function<void(std::int64_t done, std::int64_t total)> reading = {};  // tokens of the turn
};

class ChatSession {
 public:
  // `sampling`: how to answer; its stop tokens are complete. `cache`: what it reads and makes is kept there. All else
  // outlives the session.
  ChatSession(const Model& model, const models::Tokenizer& tokenizer, const models::ChatTemplate& chat,
              SamplingWords sampling, PromptCache& cache);

  // A broken-off answer stays in the conversation; a turn without any answer does not.
  // Errors: kInvalidArgument for a text that does not fit the context; the conversation is then as before.
  Answer ask(const std::string& text, std::stop_token stop, const AnswerWatch& watch);

  void reset();
  void set_system(std::optional<std::string> text) { system_ = std::move(text); }
  models::Conversation conversation() const;
  std::int64_t context() const noexcept { return context_; }

 private:
  // The conversation's tokens, with as many of its oldest turns gone as must be. Returns how many went.
  std::int64_t fit(TokenIds& tokens);
  void drop_oldest();
  Generation answer(const TokenIds& prompt, std::stop_token stop, const AnswerWatch& watch, std::string& text);

  const Model& model_;
  const models::Tokenizer& tokenizer_;
  const models::ChatTemplate& chat_;
  GenerateOptions options_;
  std::vector<std::string> stop_texts_;
  std::int64_t context_;
  std::optional<std::string> system_;
  models::Conversation turns_;
};

}  // namespace halfbyte::cli
