// An engine that says a text it was told, whatever is asked, from a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "models/serving/engine.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::tests {

class FakeEngine final : public serving::Engine {
 public:
  explicit FakeEngine(TokenIds says, std::int64_t most_waiting = 1 << 20)
      : says_(std::move(says)), most_waiting_(most_waiting), thread_([this](std::stop_token stop) { run(stop); }) {}

  std::optional<serving::Ticket> submit(serving::Request request) override {
    if (request.prompt.size() > 4096) throw Error(ErrorCode::kInvalidArgument, "the prompt is too long");
    const std::lock_guard lock(mutex_);
    if (static_cast<std::int64_t>(waiting_.size()) >= most_waiting_) return std::nullopt;
    waiting_.push_back({++last_, std::move(request)});
    news_.notify_one();
    asked_.notify_all();
    return last_;
  }
  void cancel(serving::Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    cancelled_.insert(ticket);
  }
  serving::EngineState state() const override { return {}; }
  serving::Request last_request() {
    const std::lock_guard lock(mutex_);
    return last_request_;
  }
  // Until it was asked so often.
  void wait_for(serving::Ticket ticket) {
    std::unique_lock lock(mutex_);
    asked_.wait_for(lock, std::chrono::seconds(20), [&] { return last_ >= ticket; });
  }
  bool was_cancelled(serving::Ticket ticket) {
    const std::lock_guard lock(mutex_);
    return cancelled_.contains(ticket);
  }
  // Answers go on for ever, or to max_tokens, saying the text again and again.
  void repeat() { repeats_ = true; }
  // Answers begin only after open().
  void close_gate() { is_open_ = false; }
  void open_gate() {
    is_open_ = true;
    news_.notify_one();
  }

 private:
  struct Waiting {
    serving::Ticket ticket;
    serving::Request request;
  };

  void run(const std::stop_token& stop) {
    while (true) {
      Waiting next;
      {
        std::unique_lock lock(mutex_);
        if (!news_.wait(lock, stop, [&] { return !waiting_.empty() && is_open_; })) return;
        next = std::move(waiting_.front());
        waiting_.pop_front();
        last_request_ = next.request;
        last_request_.on_token = {};
        last_request_.on_end = {};
        last_request_.on_vector = {};
      }
      answer(next, stop);
    }
  }

  void answer(const Waiting& one, const std::stop_token& stop) {
    const serving::Request& request = one.request;
    serving::AnswerEnd end{.prompt_tokens = static_cast<std::int64_t>(request.prompt.size())};
    end.outcome = serving::Outcome::kStop;
    if (request.pooling && request.on_vector) request.on_vector({3, 0, 4});
    for (std::size_t i = 0; !request.pooling && (repeats_ || i < says_.size()); ++i) {
      if (stop.stop_requested() || was_cancelled(one.ticket)) {
        end.outcome = serving::Outcome::kCancelled;
        break;
      }
      if (end.tokens >= request.max_tokens) {
        end.outcome = serving::Outcome::kLength;
        break;
      }
      ++end.tokens;
      serving::ChosenToken chosen{.token = says_[i % says_.size()]};
      if (request.top_logprobs >= 0) chosen.logprob = -0.5;
      if (!request.on_token(chosen)) break;
    }
    request.on_end(end);
  }

  TokenIds says_;
  std::int64_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable_any news_;
  std::condition_variable asked_;
  std::deque<Waiting> waiting_;
  std::set<serving::Ticket> cancelled_;
  serving::Request last_request_;
  serving::Ticket last_ = 0;
  std::atomic<bool> repeats_ = false, is_open_ = true;
  std::jthread thread_;
};

}  // namespace halfbyte::tests
