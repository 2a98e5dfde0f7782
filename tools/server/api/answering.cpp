#include "tools/server/api/answering.h"

#include <algorithm>
#include <cstdio>
#include <random>

namespace halfbyte::server {
namespace {

std::uint64_t any_seed() { return (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}(); }

Problem problem_of(const serving::AnswerEnd& end) {
  const bool is_busy = end.outcome == serving::Outcome::kCancelled || end.code == ErrorCode::kNoResources ||
                       end.code == ErrorCode::kIo;  // of ranks that answer together one is gone
  return {is_busy ? 503 : 500, end.problem.empty() ? "the server is going down" : end.problem};
}

bool is_failure(const serving::AnswerEnd& end) {
  return end.outcome == serving::Outcome::kFailed || end.outcome == serving::Outcome::kCancelled;
}

}  // namespace

Answering::Answering(std::shared_ptr<const ServedModel> model, std::shared_ptr<Exchange> exchange, AnswerPlan plan,
                     AnswerWatch watch)
    : model_(std::move(model)),
      exchange_(std::move(exchange)),
      plan_(std::move(plan)),
      watch_(std::move(watch)),
      head_(new_head(plan_.is_chat, model_->name)) {
  for (std::size_t i = 0; i < plan_.prompts.size(); ++i) {
    for (std::int64_t n = 0; n < plan_.fields.count; ++n) choices_.emplace_back(*model_->tokenizer, plan_.reading[i]);
  }
  left_ = choices_.size();
}

void Answering::start() {
  const std::lock_guard lock(mutex_);
  submit_all();
  exchange_->when_gone([self = shared_from_this()] { self->cancel(); });
  if (!plan_.fields.streams) return;
  exchange_->begin({.content_type = "text/event-stream"});
  if (plan_.echoes.empty()) return;
  for (std::size_t i = 0; i < choices_.size(); ++i)
    send(i, {.thinking = {}, .text = plan_.echoes[i / static_cast<std::size_t>(plan_.fields.count)], .calls = {}}, "");
}

serving::Request Answering::request_for(std::size_t index) {
  const AnswerFields& fields = plan_.fields;
  serving::Request out;
  out.prompt = plan_.prompts[index / static_cast<std::size_t>(fields.count)];
  out.sampling = fields.sampling;
  out.stream = index;
  const std::int64_t room = model_->context - static_cast<std::int64_t>(out.prompt.size());
  out.max_tokens = fields.max_tokens.value_or(std::max<std::int64_t>(room, 0));
  if (!fields.ignores_eos) {
    out.stop_tokens = model_->stop_tokens;
    if (plan_.is_chat)
      out.stop_tokens.insert(out.stop_tokens.end(), model_->chat_stop_tokens.begin(), model_->chat_stop_tokens.end());
  }
  out.vocabulary = model_->tokenizer->vocab_size();
  out.top_logprobs = fields.top_logprobs;
  out.continues_answers = plan_.continues_answers;
  if (plan_.filter) out.filter = plan_.filter();
  out.client = plan_.client;
  out.on_token = [self = shared_from_this(), index](const serving::ChosenToken& chosen) {
    return self->on_token(index, chosen);
  };
  out.on_end = [self = shared_from_this(), index](const serving::AnswerEnd& end) { self->on_end(index, end); };
  return out;
}

void Answering::submit_all() {
  const std::uint64_t seed = plan_.fields.seed.value_or(any_seed());
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    serving::Request request = request_for(i);
    request.seed = seed;
    std::optional<serving::Ticket> ticket;
    try {
      ticket = model_->engine->submit(std::move(request));
    } catch (const Error& error) {
      cancel_submitted();
      throw Problem(400, error.what(), plan_.is_chat ? "messages" : "prompt", "context_length_exceeded");
    }
    if (!ticket) {
      cancel_submitted();
      throw Problem(429, "too many requests wait already; try again soon");
    }
    tickets_.push_back(*ticket);
  }
}

// Of a request that cannot be served whole: what comes of its parts is told to nobody.
void Answering::cancel_submitted() {
  is_gone_ = true;
  for (const serving::Ticket ticket : tickets_) model_->engine->cancel(ticket);
}

void Answering::cancel() {
  const std::lock_guard lock(mutex_);
  cancel_submitted();
}

bool Answering::on_token(std::size_t index, const serving::ChosenToken& chosen) {
  const std::lock_guard lock(mutex_);
  if (is_gone_) return false;
  Growing& one = choices_[index];
  if (chosen.logprob) one.tokens.push_back(chosen);
  Delta delta = one.choice.push(chosen.token);
  if (plan_.fields.streams) {
    if (!delta.is_empty() || !one.was_sent) send(index, std::move(delta), "");
  } else {
    add(one, std::move(delta));
  }
  return !one.choice.is_stopped();
}

void Answering::on_end(std::size_t index, const serving::AnswerEnd& end) {
  const std::lock_guard lock(mutex_);
  watch_.ended(end);
  Growing& one = choices_[index];
  one.end = end;
  --left_;
  try {
    end_choice(index);
  } catch (const std::exception&) {  // what cannot be said any more
    is_gone_ = true;
    exchange_->end();
  }
}

void Answering::end_choice(std::size_t index) {
  Growing& one = choices_[index];
  const serving::AnswerEnd& end = one.end;
  if (!is_gone_) {
    Delta rest = one.choice.finish();
    const char* const reason = finish_reason(end.outcome, one.choice.has_calls());
    if (plan_.fields.streams && !is_failure(end)) {
      if (!rest.is_empty()) send(index, std::move(rest), "");
      send(index, {}, reason);
    } else {
      add(one, std::move(rest));
    }
  }
  if (left_ == 0) finish();
}

void Answering::add(Growing& choice, Delta delta) {
  choice.all.thinking += delta.thinking;
  choice.all.text += delta.text;
  choice.all.calls.insert(choice.all.calls.end(), delta.calls.begin(), delta.calls.end());
}

Json Answering::take_logprobs(Growing& choice) {
  const auto tokens = std::exchange(choice.tokens, {});
  if (plan_.fields.top_logprobs < 0 || tokens.empty()) return nullptr;
  return logprobs_of(*model_->tokenizer, tokens, plan_.is_chat, choice.offset);
}

void Answering::send(std::size_t index, Delta delta, const std::string& reason) {
  Growing& one = choices_[index];
  Piece piece{.index = static_cast<std::int64_t>(index), .is_first = !std::exchange(one.was_sent, true)};
  piece.first_call = one.calls_sent;
  one.calls_sent += delta.calls.size();
  piece.logprobs = take_logprobs(one);
  one.offset += characters_of(delta.text);
  piece.delta = std::move(delta);
  piece.finish_reason = reason;
  exchange_->send(event_of(piece_of(head_, piece, plan_.fields.includes_usage)));
}

Usage Answering::usage() const {
  Usage out;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const serving::AnswerEnd& end = choices_[i].end;
    out.tokens += end.tokens;
    if (i % static_cast<std::size_t>(plan_.fields.count) != 0) continue;  // one prompt's answers
    out.prompt_tokens +=
        static_cast<std::int64_t>(plan_.prompts[i / static_cast<std::size_t>(plan_.fields.count)].size());
    out.cached_tokens += end.cached_tokens;
  }
  return out;
}

void Answering::finish() {
  watch_.done(summary());
  if (is_gone_) return;
  const auto failed = std::ranges::find_if(choices_, [](const Growing& one) { return is_failure(one.end); });
  if (plan_.fields.streams) {
    if (failed != choices_.end()) exchange_->send("data: " + json_of(problem_of(failed->end)) + "\n\n");
    if (plan_.fields.includes_usage) exchange_->send(event_of(usage_piece(head_, usage())));
    exchange_->send(kLastEvent);
    return exchange_->end();
  }
  if (failed != choices_.end()) return exchange_->respond(response_of(problem_of(failed->end)));
  std::vector<WholeChoice> whole;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Growing& one = choices_[i];
    Json logprobs = take_logprobs(one);
    Delta all = std::move(one.all);
    if (!plan_.echoes.empty()) all.text = plan_.echoes[i / static_cast<std::size_t>(plan_.fields.count)] + all.text;
    whole.push_back({static_cast<std::int64_t>(i), std::move(all),
                     finish_reason(one.end.outcome, one.choice.has_calls()), std::move(logprobs)});
  }
  exchange_->respond({.body = text_of(whole_answer(head_, whole, usage()))});
}

// "37 + 64 tokens (32 cached), first after 0.21 s, 1.83 s".
std::string Answering::summary() const {
  const Usage all = usage();
  double first = 0, last = 0;
  for (const Growing& one : choices_) {
    first = first == 0 ? one.end.first_token_s : std::min(first, one.end.first_token_s);
    last = std::max(last, one.end.all_s);
  }
  char times[80];
  std::snprintf(times, sizeof times, "first after %.3f s, all after %.3f s", first, last);
  return std::to_string(all.prompt_tokens) + " + " + std::to_string(all.tokens) + " tokens (" +
         std::to_string(all.cached_tokens) + " cached), " + times + (is_gone_ ? ", the client went" : "");
}

}  // namespace halfbyte::server
