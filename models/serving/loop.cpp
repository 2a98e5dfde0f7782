// Who is served: requests come, wait, begin, and end.
#include "models/serving/loop.h"

#include <algorithm>
#include <map>

#include <c10/core/InferenceMode.h>

namespace halfbyte::serving {
namespace {

// A beginning that another is reading is worth waiting for, where it has so many tokens more than what is there.
constexpr std::int64_t kWorthWaiting = 16;

}  // namespace

void Scheduler::Loop::run(std::stop_token stop) {
  const c10::InferenceMode guard;
  const std::shared_ptr<const void> beside = options_.beside ? options_.beside() : nullptr;
  while (take_news(stop)) {
    try {
      serve(stop);
    } catch (const std::exception&) {  // no memory for what a pass needs beside it
      fail_all("the server ran out of memory");
    }
    remove_ended();
    publish();
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.splice(waiting_.end(), submitted_);
  }
  for (const Sequences* all : {&active_, &waiting_}) {
    for (const auto& sequence : *all) finish(*sequence, Outcome::kCancelled);
  }
  remove_ended();
}

// One round of all that there is.
void Scheduler::Loop::serve(std::stop_token stop) {
  admit();
  publish();
  read_prompts(stop);
  remove_ended();
  answer(stop);
}

void Scheduler::Loop::fail_all(const std::string& problem) {
  ended_.clear();
  for (const auto& sequence : active_) fail(*sequence, ErrorCode::kNoResources, problem);
  while (pool_.drop_oldest()) continue;
}

// Waits for news where there is nothing to do. False: it is to end.
bool Scheduler::Loop::take_news(std::stop_token stop) {
  std::set<Ticket> cancelled;
  {
    std::unique_lock lock(mutex_);
    if (active_.empty() && waiting_.empty())
      news_.wait(lock, stop, [&] { return !submitted_.empty() || !cancelled_.empty(); });
    counts_.requests += static_cast<std::int64_t>(submitted_.size());
    waiting_.splice(waiting_.end(), submitted_);
    cancelled.swap(cancelled_);
    state_.waiting = static_cast<std::int64_t>(waiting_.size());
  }
  end_cancelled(active_, cancelled);
  end_cancelled(waiting_, cancelled);
  remove_ended();
  return !stop.stop_requested();
}

void Scheduler::Loop::end_cancelled(Sequences& sequences, const std::set<Ticket>& cancelled) {
  if (cancelled.empty()) return;
  for (const auto& sequence : sequences) {
    if (cancelled.contains(sequence->ticket)) finish(*sequence, Outcome::kCancelled);
  }
}

// Of the client with the fewest answers being made, the one that came first.
Scheduler::Loop::Sequences::iterator Scheduler::Loop::next_waiting() {
  std::map<std::string, std::int64_t> active;
  for (const auto& sequence : active_) ++active[sequence->request.client];
  return std::ranges::min_element(waiting_, {}, [&](const auto& sequence) {
    const auto of_client = active.find(sequence->request.client);
    return of_client == active.end() ? 0 : of_client->second;
  });
}

void Scheduler::Loop::admit() {
  Sequences later;  // they wait for another's beginning
  while (!waiting_.empty() && static_cast<std::int64_t>(active_.size()) < options_.parallel) {
    const auto next = next_waiting();
    auto found = shared_beginning(**next);
    if (is_being_read(**next, found ? found->tokens : 0)) {
      later.splice(later.end(), waiting_, next);
      continue;
    }
    Sequence& sequence = **next;
    const std::int64_t begin = found ? found->tokens : 0;
    const std::int64_t bytes = empty_.bytes_for(sequence.length() + 1) - empty_.bytes_for(begin);
    if (found) admitting_.emplace(std::move(found->session));
    const bool may_begin = has_room(bytes) || active_.empty();
    std::optional<models::Session> session = std::exchange(admitting_, std::nullopt);
    if (!may_begin) break;
    headroom_ -= bytes;
    if (found) {
      sequence.session = std::move(session);
    } else {
      sequence.session.emplace(empty_.fork());
    }
    sequence.session->expect(sequence.length());
    sequence.as_prompt = found ? found->as_prompt : 0;
    if (sequence.chosen() == 0) {
      sequence.room = std::min(sequence.request.max_tokens, context_ - sequence.length());
      sequence.end.cached_tokens = begin;
      counts_.cached_tokens += begin;
      sequence.end.queued_s = seconds_since(sequence.submitted);
    }
    sequence.admitted = ++admissions_;
    active_.splice(active_.end(), waiting_, next);
  }
  waiting_.splice(waiting_.begin(), later);
}

std::optional<PrefixPool::Found> Scheduler::Loop::shared_beginning(const Sequence& sequence) {
  if (sequence.request.pooling == Pooling::kMean) return std::nullopt;
  const bool as_prompt_only = !sequence.request.continues_answers;
  const auto tokens = std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.read_together));
  auto best = pool_.find(tokens, as_prompt_only);
  if (fixed_length_ > 0 && sequence.length() > fixed_length_) return best;
  for (const auto& other : active_) {
    std::int64_t most = std::min(common_tokens(tokens, other->tokens), sequence.read_together - 1);
    if (as_prompt_only) most = std::min(most, other->as_prompt);
    most = std::min(most, other->read());
    if (best && most <= best->tokens) continue;
    if (fixed_length_ > 0 && std::max(other->read(), other->session->expected()) > fixed_length_) continue;
    auto session = beginning_of(*other->session, other->snapshots, most);
    if (!session || (best && session->length() <= best->tokens)) continue;
    const std::int64_t length = session->length();
    best = PrefixPool::Found{std::move(*session), length, std::min(length, other->as_prompt)};
  }
  return best;
}

bool Scheduler::Loop::is_being_read(const Sequence& sequence, std::int64_t found) const {
  if (sequence.request.pooling == Pooling::kMean) return false;
  return std::ranges::any_of(active_, [&](const auto& other) {
    if (other->is_prompt_read() || !other->reads_many()) return false;
    const std::int64_t shared = std::min(common_tokens(sequence.tokens, other->tokens), other->read_together);
    return shared > other->read() && shared > found + kWorthWaiting;
  });
}

void Scheduler::Loop::finish(Sequence& sequence, Outcome outcome) {
  if (std::ranges::find(ended_, &sequence) != ended_.end()) return;
  sequence.end.outcome = outcome;
  sequence.end.all_s = seconds_since(sequence.submitted);
  counts_.cancelled += outcome == Outcome::kCancelled;
  counts_.failed += outcome == Outcome::kFailed;
  ended_.push_back(&sequence);
}

void Scheduler::Loop::fail(Sequence& sequence, ErrorCode code, const std::string& problem) {
  sequence.end.code = code;
  sequence.end.problem = problem;
  finish(sequence, Outcome::kFailed);
}

// What it read serves others, whatever became of it.
void Scheduler::Loop::keep(Sequence& sequence) {
  if (!sequence.session || sequence.end.outcome == Outcome::kFailed || sequence.read() == 0) return;
  TokenIds tokens(sequence.tokens.begin(), sequence.tokens.begin() + sequence.read());
  pool_.keep({std::move(tokens), sequence.as_prompt, std::move(*sequence.session), std::move(sequence.snapshots)});
}

void Scheduler::Loop::remove_ended() {
  const auto ended = std::exchange(ended_, {});
  if (ended.empty()) return;
  for (Sequence* one : ended) {
    for (Sequences* all : {&active_, &waiting_}) {
      const auto place = std::ranges::find(*all, one, &std::unique_ptr<Sequence>::get);
      if (place == all->end()) continue;
      const std::unique_ptr<Sequence> owned = std::move(*place);
      all->erase(place);
      try {
        keep(*owned);
        measure();
      } catch (const std::exception&) {  // no memory to keep it in
        headroom_ = 0;
      }
      publish();
      if (owned->request.on_end) owned->request.on_end(owned->end);
    }
  }
}

bool Scheduler::Loop::has_room(std::int64_t bytes) {
  if (headroom_ < bytes) measure();
  while (headroom_ < bytes && pool_.drop_oldest()) measure();
  return headroom_ >= bytes;
}

void Scheduler::Loop::measure() {
  std::set<const void*> seen;
  std::int64_t used = 0;
  const auto visit = [&](const void* piece, std::int64_t bytes) {
    if (seen.insert(piece).second) used += bytes;
  };
  for (const auto& sequence : active_) {
    sequence->session->visit_memory(visit);
    for (const models::Session& snapshot : sequence->snapshots) snapshot.visit_memory(visit);
  }
  if (admitting_) admitting_->visit_memory(visit);
  pool_.visit_memory(visit);
  counts_.kept_bytes = used;
  headroom_ = limit_ - used;
}

// Others wait, so that these go on; of the pieces theirs are taken away.
void Scheduler::Loop::make_room(std::vector<Piece>& pieces) {
  const auto wanted = [&] {
    std::int64_t bytes = 0;
    for (const auto& [sequence, tokens] : pieces)
      bytes += empty_.bytes_for(sequence->read() + tokens) - empty_.bytes_for(sequence->read());
    return bytes;
  };
  while (!has_room(wanted()) && active_.size() > 1) preempt_last(pieces);
  headroom_ -= wanted();
}

void Scheduler::Loop::preempt_last(std::vector<Piece>& pieces) {
  const auto last = std::ranges::max_element(active_, {}, [](const auto& sequence) { return sequence->admitted; });
  Sequence& sequence = **last;
  std::erase_if(pieces, [&](const Piece& piece) { return piece.sequence == &sequence; });
  sequence.session.reset();
  sequence.snapshots.clear();
  sequence.sum.clear();
  sequence.as_prompt = 0;
  ++counts_.preempted;
  waiting_.splice(waiting_.begin(), active_, last);
  measure();
}

}  // namespace halfbyte::serving
