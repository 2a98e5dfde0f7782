#include "tools/model/chat_session.h"

#include <algorithm>

#include "models/architectures/model_config.h"
#include "models/chat/answer_stream.h"
#include "models/tokenizers/stop_texts.h"
#include "tools/text/chat_options.h"

namespace halfbyte::cli {

using models::Speaker;

ChatSession::ChatSession(const Model& model, const models::Tokenizer& tokenizer, const models::ChatTemplate& chat,
                         SamplingWords sampling, PromptCache& cache)
    : model_(model),
      tokenizer_(tokenizer),
      chat_(chat),
      options_(std::move(sampling.options)),
      stop_texts_(std::move(sampling.stop_texts)),
      context_(model.config().max_position_embeddings) {
  options_.cache = &cache;
}

models::Conversation ChatSession::conversation() const { return conversation_of(system_, turns_); }

void ChatSession::reset() {
  turns_.clear();
  options_.cache->clear();
}

// A user's turn and its answer.
void ChatSession::drop_oldest() { turns_.erase(turns_.begin(), turns_.begin() + 2); }

// When turns must go, they make room for half of the context: what is left is read again, which should be seldom.
std::int64_t ChatSession::fit(TokenIds& tokens) {
  const auto needed = [&] { return static_cast<std::int64_t>(tokens.size()); };
  const std::int64_t answer = std::min(options_.max_gen_len, context_ / 4);
  std::int64_t dropped = 0;
  tokens = chat_.encode(conversation(), tokenizer_);
  if (needed() + answer <= context_) return 0;
  while (turns_.size() > 1 && needed() > context_ / 2) {
    drop_oldest();
    ++dropped;
    tokens = chat_.encode(conversation(), tokenizer_);
  }
  if (needed() < context_) return dropped;
  throw Error(ErrorCode::kInvalidArgument, "this turn takes " + std::to_string(needed()) +
                                               " tokens with the system text; the model's context is " +
                                               std::to_string(context_));
}

Generation ChatSession::answer(const TokenIds& prompt, std::stop_token stop, const AnswerWatch& watch,
                               std::string& text) {
  models::AnswerStream stream(tokenizer_, chat_.begins_with_line());
  models::StopTexts stops(stop_texts_);
  const auto say = [&](const std::string& piece) {
    text += piece;
    if (!piece.empty()) watch.show(piece);
  };
  options_.on_prompt = watch.reading;
  options_.stop = std::move(stop);
  options_.on_token = [&](std::size_t, std::int64_t token) {
    say(stops.push(stream.push(token)));
    return true;
  };
  options_.is_end = [&](std::size_t, std::int64_t) { return stops.is_found(); };
  Generation generation = model_.generate({prompt}, options_).front();
  say(stops.push(stream.finish()));
  say(stops.finish());
  ++options_.seed;  // or every answer would take the same chances
  return generation;
}

Answer ChatSession::ask(const std::string& text, std::stop_token stop, const AnswerWatch& watch) {
  const models::Conversation before = turns_;
  turns_.push_back({Speaker::kUser, text});
  Answer out;
  try {
    TokenIds prompt;
    out.dropped_turns = fit(prompt);
    out.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    if (out.dropped_turns > 0) watch.dropping(out.dropped_turns);
    out.generation = answer(prompt, std::move(stop), watch, out.text);
  } catch (...) {
    turns_ = before;
    throw;
  }
  if (out.generation.finish_reason == FinishReason::kCancelled && out.text.empty()) {
    turns_.pop_back();
  } else {
    turns_.push_back({Speaker::kAssistant, out.text});
  }
  return out;
}

}  // namespace halfbyte::cli
