#include "tools/server/api/choice.h"

namespace halfbyte::server {

Choice::Choice(const models::Tokenizer& tokenizer, const ChoiceOptions& options)
    : tokenizer_(tokenizer), stops_(options.stops) {
  if (options.is_chat) {
    answer_.emplace(tokenizer, options.begins_with_line);
  } else {
    decoder_.emplace(tokenizer, options.context);
  }
  if (options.separates_thinking) thinking_.emplace(options.begins_thinking);
  if (!options.tools.empty()) calls_.emplace(options.tools);
}

Delta Choice::push(std::int64_t token) {
  std::string text = answer_ ? answer_->push(token) : decoder_->push(token);
  if (calls_ && tokenizer_.is_special(token)) {
    if (const std::string piece = tokenizer_.piece(token); text.empty() && begins_call(piece)) text = piece;
  }
  return split(stops_.push(text));
}

Delta Choice::finish() {
  Delta out = split(stops_.push(answer_ ? answer_->finish() : decoder_->finish()) + stops_.finish());
  if (thinking_) {
    auto [thinking, answer] = thinking_->finish();
    out.thinking += thinking;
    add_answer(std::move(answer), out);
  }
  if (calls_) {
    auto [text, calls] = calls_->finish();
    out.text += text;
    out.calls.insert(out.calls.end(), calls.begin(), calls.end());
  }
  return out;
}

Delta Choice::split(const std::string& text) {
  Delta out;
  if (text.empty()) return out;
  if (!thinking_) {
    add_answer(text, out);
    return out;
  }
  auto [thinking, answer] = thinking_->push(text);
  out.thinking = std::move(thinking);
  add_answer(std::move(answer), out);
  return out;
}

void Choice::add_answer(std::string text, Delta& out) {
  if (text.empty()) return;
  if (!calls_) {
    out.text += text;
    return;
  }
  auto [own, calls] = calls_->push(text);
  out.text += own;
  out.calls.insert(out.calls.end(), calls.begin(), calls.end());
}

}  // namespace halfbyte::server
