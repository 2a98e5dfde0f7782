// What a scheduler's sequences read and choose: pieces of prompts, then one step of every answer.
#include <algorithm>
#include <chrono>

#include "models/architectures/model_config.h"
#include "models/generation/passes.h"
#include "models/serving/choices.h"
#include "models/serving/loop.h"
#include "quant/thread_pool.h"

namespace halfbyte::serving {
namespace {

// Beginnings of this many tokens more are kept of prompts whose sessions cannot be cut.
constexpr std::int64_t kSnapshotTokens = 256;

// What a piece of work threw, if it did.
struct Failure {
  bool is_one = false;
  ErrorCode code = ErrorCode::kContract;
  std::string problem = {};
};

template <class Work>
Failure failure_of(const Work& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {true, error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {true, ErrorCode::kNoResources, "there is no memory for this answer"};
  } catch (const std::exception&) {
    return {true, ErrorCode::kNoResources, "the model could not be run"};
  }
}

std::int64_t tokens_of(std::span<const Piece> pieces) {
  std::int64_t all = 0;
  for (const Piece& piece : pieces) all += piece.tokens;
  return all;
}

}  // namespace

// Of prompts that are read in passes of many rows. Who has the least left to read comes first, but who has waited for
// longer than others take to read comes before them.
std::vector<Piece> Scheduler::Loop::prompt_pieces() const {
  std::vector<Sequence*> reading;
  for (const auto& sequence : active_) {
    if (sequence->reads_many()) reading.push_back(sequence.get());
  }
  const auto due = [&](const Sequence* sequence) {
    const auto left = static_cast<double>(sequence->read_together - sequence->read()) * pace_.seconds_per_token();
    return std::chrono::duration<double>(sequence->submitted.time_since_epoch()).count() + left;
  };
  std::ranges::sort(reading, {}, due);
  const bool others_wait = reading.size() < active_.size();
  std::int64_t left = pace_.tokens(others_wait, models::kPrefillTokens);
  std::vector<Piece> out;
  for (Sequence* sequence : reading) {
    if (left == 0) break;
    const std::int64_t tokens = std::min(left, sequence->read_together - sequence->read());
    out.push_back({sequence, tokens});
    left -= tokens;
  }
  return out;
}

void Scheduler::Loop::read_prompts(std::stop_token stop) {
  std::vector<Piece> pieces = prompt_pieces();
  if (!pieces.empty()) make_room(pieces);
  if (pieces.empty()) return;
  const auto begin = Sequence::Clock::now();
  run(pieces, stop);
  pace_.took(tokens_of(pieces), seconds_since(begin));
}

// One token of every answer, or a few of those that are read again as they were chosen; in passes of as many rows as
// are alike.
void Scheduler::Loop::answer(std::stop_token stop) {
  std::vector<Piece> all;
  for (const auto& sequence : active_) {
    reread_if_outgrown(*sequence);
    if (sequence->reads_many()) continue;
    const std::int64_t end = sequence->is_prompt_read() ? sequence->length() : sequence->read_together;
    all.push_back({sequence.get(), std::min(Sequence::kFewTokens, end - sequence->read())});
  }
  if (!all.empty()) make_room(all);
  for (std::size_t first = 0, next; first < all.size() && !stop.stop_requested(); first = next) {
    std::int64_t rows = 0;
    for (next = first; next < all.size() && rows + all[next].tokens <= Sequence::kFewTokens; ++next)
      rows += all[next].tokens;
    run(std::span(all).subspan(first, next - first), stop);
  }
}

void Scheduler::Loop::run(std::span<const Piece> pieces, std::stop_token stop) {
  const auto begin = Sequence::Clock::now();
  at::Tensor hidden;
  const Failure failure = failure_of([&] { hidden = read_pieces(model_, pieces, stop); });
  if (failure.code == ErrorCode::kInterrupted) return;
  if (failure.is_one && pieces.size() > 1) return run_one_by_one(pieces, stop);
  if (failure.is_one) return fail(*pieces.front().sequence, failure.code, failure.problem);
  use(pieces, hidden);
  counts_.busy_s += seconds_since(begin);
}

// So that one whose values leave the range of their dtype ends, and the others go on.
void Scheduler::Loop::run_one_by_one(std::span<const Piece> pieces, std::stop_token stop) {
  for (std::size_t i = 0; i < pieces.size(); ++i) run(pieces.subspan(i, 1), stop);
}

// The pass counts: what fails from now on fails alone.
void Scheduler::Loop::use(std::span<const Piece> pieces, const at::Tensor& hidden) {
  std::int64_t row = 0;
  std::vector<Ready> ready;
  for (const auto& [sequence, tokens] : pieces) {
    const at::Tensor states = hidden.narrow(0, row, tokens);
    row += tokens;
    const Failure failure = failure_of([&] { note_read(*sequence, states); });
    if (failure.is_one) {
      fail(*sequence, failure.code, failure.problem);
    } else if (sequence->read() == sequence->length()) {
      ready.push_back({sequence, states.narrow(0, tokens - 1, 1)});
    }
  }
  if (!ready.empty()) choose_tokens(ready);
}

void Scheduler::Loop::note_read(Sequence& sequence, const at::Tensor& states) {
  const std::int64_t tokens = states.size(0), read = sequence.read(), before = read - tokens;
  if (sequence.request.pooling) pool_states(sequence, states);
  if (before >= sequence.read_together) return;
  if (sequence.chosen() == 0) counts_.prompt_tokens += tokens;
  if (sequence.read_together > Sequence::kFewTokens && sequence.as_prompt == before) sequence.as_prompt = read;
  const bool is_cuttable = sequence.session->least() == 0;
  if (!is_cuttable && (before / kSnapshotTokens != read / kSnapshotTokens || sequence.is_prompt_read()))
    sequence.snapshots.push_back(sequence.session->fork());
}

// Of states (tokens, hidden_size): their sum, or the last one.
void Scheduler::Loop::pool_states(Sequence& sequence, const at::Tensor& states) {
  const bool is_mean = sequence.request.pooling == Pooling::kMean;
  const at::Tensor given = model_.states(is_mean ? states : states.narrow(0, states.size(0) - 1, 1));
  const at::Tensor part = (is_mean ? given.to(at::kFloat).sum(0) : given.select(0, 0)).to(at::kFloat).cpu();
  const at::Tensor values = part.contiguous();
  if (!is_mean) sequence.sum.clear();
  sequence.sum.resize(static_cast<std::size_t>(values.numel()));
  for (std::size_t i = 0; i < sequence.sum.size(); ++i) sequence.sum[i] += values.const_data_ptr<float>()[i];
}

void Scheduler::Loop::choose_tokens(std::span<const Ready> ready) {
  std::vector<at::Tensor> rows;
  for (const Ready& one : ready) rows.push_back(one.state);
  at::Tensor logits;
  const Failure failure = failure_of([&] { logits = logits_of(model_, at::cat(rows)); });
  if (failure.is_one && ready.size() > 1) {
    for (std::size_t i = 0; i < ready.size(); ++i) choose_tokens(ready.subspan(i, 1));
    return;
  }
  if (failure.is_one) return fail(*ready.front().sequence, failure.code, failure.problem);
  std::vector<ChosenToken> chosen(ready.size());
  std::vector<Failure> failures(ready.size());
  const auto width = static_cast<std::size_t>(logits.size(1));
  const float* const values = logits.const_data_ptr<float>();
  const auto choose_one = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    Sequence& sequence = *ready[at].sequence;
    if (sequence.request.pooling || sequence.room == 0) return;
    failures[at] = failure_of([&] { chosen[at] = choose(sequence, {values + at * width, width}); });
  };
  quant::for_each_piece(static_cast<std::int64_t>(chosen.size()), width > 4096, choose_one);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Failure told = failures[i].is_one ? failures[i] : failure_of([&] { accept(*ready[i].sequence, chosen[i]); });
    if (told.is_one) fail(*ready[i].sequence, told.code, told.problem);
  }
}

void Scheduler::Loop::accept(Sequence& sequence, const ChosenToken& chosen) {
  const Request& request = sequence.request;
  if (sequence.end.first_token_s == 0)
    sequence.end.first_token_s = std::chrono::duration<double>(Sequence::Clock::now() - sequence.submitted).count();
  if (request.pooling) {
    if (request.pooling == Pooling::kMean) {
      for (float& value : sequence.sum) value /= static_cast<float>(sequence.length());
    }
    if (request.on_vector) request.on_vector(std::move(sequence.sum));
    return finish(sequence, Outcome::kStop);
  }
  const bool is_full = sequence.length() >= context_;
  if (sequence.room == 0) return finish(sequence, is_full ? Outcome::kContext : Outcome::kLength);
  if (chosen.token < 0)
    return fail(sequence, ErrorCode::kUnsupported, "no token of this vocabulary goes on as the schema wants");
  sequence.tokens.push_back(chosen.token);
  if (std::ranges::find(request.stop_tokens, chosen.token) != request.stop_tokens.end())
    return finish(sequence, Outcome::kStop);
  ++sequence.end.tokens;
  ++counts_.tokens;
  if (request.on_token && !request.on_token(chosen)) return finish(sequence, Outcome::kStop);
  if (request.filter && request.filter->must_end()) return finish(sequence, Outcome::kStop);
  if (--sequence.room > 0) return;
  finish(sequence, sequence.chosen() < request.max_tokens ? Outcome::kContext : Outcome::kLength);
}

// As generate() does it: what was turned by the factors of shorter texts is read again.
void Scheduler::Loop::reread_if_outgrown(Sequence& sequence) const {
  const std::int64_t read = sequence.read();
  const auto is_outgrown = [&](const models::RopeConfig& rope) {
    return rope.type == models::RopeType::kLongrope && read == rope.fixed_length();
  };
  if (!sequence.is_prompt_read() || std::ranges::none_of(model_.config().ropes, is_outgrown)) return;
  if (sequence.session->expected() > read) return;
  sequence.session->cut(0);
  sequence.session->expect(sequence.length());
  sequence.read_together = read;
  sequence.as_prompt = 0;
  sequence.snapshots.clear();
}

}  // namespace halfbyte::serving
