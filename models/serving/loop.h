// The thread of a scheduler: who is served, in which passes, and what is kept.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "models/serving/pace.h"
#include "models/serving/passes.h"
#include "models/serving/prefix_pool.h"
#include "models/serving/scheduler.h"
#include "models/serving/sequence.h"

namespace halfbyte::serving {

class Scheduler::Loop {
 public:
  Loop(const models::CausalLM& model, const SchedulerOptions& options);
  ~Loop();

  std::optional<Ticket> submit(Request request);
  void cancel(Ticket ticket);
  EngineState state() const;
  std::int64_t context() const noexcept { return context_; }
  std::int64_t kept_bytes() const noexcept { return limit_; }
  std::int64_t bytes_of_sequence() const { return empty_.bytes_for(context_); }

 private:
  using Sequences = std::list<std::unique_ptr<Sequence>>;
  // A sequence of which all tokens are read, and the state of the last one. Shape: (1, hidden_size).
  struct Ready {
    Sequence* sequence;
    at::Tensor state;
  };

  void check(const Request& request) const;

  // All below in the thread alone.
  void run(std::stop_token stop);
  void serve(std::stop_token stop);
  bool take_news(std::stop_token stop);
  void end_cancelled(Sequences& sequences, const std::set<Ticket>& cancelled);
  // Who waits and may begin now does.
  void admit();
  Sequences::iterator next_waiting();
  std::optional<PrefixPool::Found> shared_beginning(const Sequence& sequence);
  bool is_being_read(const Sequence& sequence, std::int64_t found) const;
  // Passes.
  std::vector<Piece> prompt_pieces() const;
  void read_prompts(std::stop_token stop);
  void answer(std::stop_token stop);
  void run(std::span<const Piece> pieces, std::stop_token stop);
  void run_one_by_one(std::span<const Piece> pieces, std::stop_token stop);
  void use(std::span<const Piece> pieces, const at::Tensor& hidden);
  void note_read(Sequence& sequence, const at::Tensor& states);
  void pool_states(Sequence& sequence, const at::Tensor& states);
  void choose_tokens(std::span<const Ready> ready);
  void accept(Sequence& sequence, const ChosenToken& chosen);
  void reread_if_outgrown(Sequence& sequence) const;
  // Memory of keys and values. Whether all these pieces may be read now: others may have had to wait instead.
  void make_room(std::vector<Piece>& pieces);
  bool has_room(std::int64_t bytes);
  void measure();
  void preempt_last(std::vector<Piece>& pieces);
  // The end of a sequence, which is then gone.
  void finish(Sequence& sequence, Outcome outcome);
  void fail_all(const std::string& problem);
  void fail(Sequence& sequence, ErrorCode code, const std::string& problem);
  void remove_ended();
  void keep(Sequence& sequence);
  void publish();

  const models::CausalLM& model_;
  const SchedulerOptions options_;
  const models::Session empty_;
  const std::int64_t context_, limit_;
  std::int64_t fixed_length_ = 0;  // of positions turned alike in texts of any length up to it; 0: no limit
  PrefixPool pool_;
  Pace pace_;
  Sequences waiting_, active_;
  std::vector<Sequence*> ended_;
  std::optional<models::Session> admitting_;  // of a sequence that is about to begin
  std::int64_t headroom_ = 0;                 // bytes that are surely free
  std::uint64_t admissions_ = 0;
  EngineState counts_;  // the thread's; copied to state_

  mutable std::mutex mutex_;
  std::condition_variable_any news_;
  Sequences submitted_;
  std::set<Ticket> cancelled_;
  Ticket last_ticket_ = 0;
  EngineState state_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace halfbyte::serving
