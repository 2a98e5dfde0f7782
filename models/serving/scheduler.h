// Continuous batching: requests join and leave between passes of one model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <halfbyte/causal_lm.h>

#include "models/serving/engine.h"

namespace halfbyte::serving {

struct SchedulerOptions {
  std::int64_t parallel = 8;    // answers made at once; the others wait
  std::int64_t waiting = 64;    // that may wait
  std::int64_t context = 0;     // tokens of a prompt with its answer; 0: the model's
  std::int64_t kept_bytes = 0;  // memory of keys and values; 0: what `parallel` sequences of that context take
  double stall_s = 0.15;        // what reading prompts may add to the time between two tokens of an answer
  // Called in the thread that runs the model; what it gives lives there as long as that runs: adapters are of a thread.
  std::function<std::shared_ptr<const void>()> beside = {};
};

// Runs the model in a thread of its own until it is destroyed; then what is left ends with kCancelled. Long prompts are
// read in pieces between the steps of answers. What texts have in common at their beginning is read once while memory
// for it lasts; what has been of no use for longest goes first, then answers that came last wait and are read again. An
// answer's tokens are those that generate() gives its prompt alone, but where Request::continues_answers allows others,
// and in models with experts or recurrent states, whose sums are rounded by what they are read with.
class Scheduler final : public Engine {
 public:
  // `model` outlives it. Errors: kInvalidArgument for options out of range.
  Scheduler(const models::CausalLM& model, const SchedulerOptions& options);
  ~Scheduler() override;

  std::optional<Ticket> submit(Request request) override;
  void cancel(Ticket ticket) override;
  EngineState state() const override;

  std::int64_t context() const noexcept;
  std::int64_t kept_bytes() const noexcept;
  // Of one sequence as long as the context.
  std::int64_t bytes_of_sequence() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace halfbyte::serving
