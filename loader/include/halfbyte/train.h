// Training of a loaded model by a host that has its own optimizer: LibTorch's, or any other torch::optim::Optimizer.
//
// Dtypes: operands of the model's products as its policy says, forward and backward; parameters, gradients, norms, the
// residual stream, softmax and loss in float32. The policy alone decides: an Autocast around a call changes nothing in
// it. Load the model under DtypePolicy::amp() or float32(), and with ComputeMode::kFloat.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include <halfbyte/backward.h>
#include <halfbyte/group.h>
#include <halfbyte/lora.h>
#include <halfbyte/training.h>

namespace halfbyte {

// One update, as on_step is told of it.
struct TrainStep {
  std::int64_t step = 0;                     // from 1 on
  double loss = 0;                           // mean of the step's scored tokens, before the update; natural logarithms
  double gradient_norm = 0;                  // before it was clipped
  std::int64_t tokens = 0;                   // that were scored
  std::vector<std::int64_t> sequences = {};  // that it learnt from, from 0 on
  bool was_updated = true;  // false: the gradients were too large for float16, and the next step's are scaled less
};

struct TrainOptions {
  std::int64_t steps = 100;
  std::int64_t batch = 1;          // sequences that are run together
  std::int64_t accumulate = 1;     // such batches whose gradients are added up for a step
  double clip = 1;                 // the gradients' norm, at most; 0: any
  std::uint64_t seed = 0;          // of the order of the sequences: all once, before any comes again
  bool recomputes = true;          // layers run a second time for their gradients: slower, in a fraction of the memory
  const Lora* adapters = nullptr;  // of this model, beside its weights; null: none
  // Of ranks that train one model together (data parallelism): each has all of it, loaded without LoadOptions::group,
  // and an optimizer of its own, and calls this with the same sequences and options. They divide each step's sequences,
  // and have the same losses, gradients and parameters, bit by bit. Of a pass at most `batch` sequences are run
  // together; with dropout one is. Null: there is one process.
  std::shared_ptr<Group> group = {};
  // Called after each step, from the same thread: a learning rate's schedule has its place here.
  std::function<void(const TrainStep& step)> on_step = {};
  std::stop_token stop = {};  // ends it before the update at hand; any rank's ends it in all
};

// Makes one step after another and gives their losses. What is trained is what the optimizer has: adapters'
// parameters(), the model's own where they want gradients, or both. The mean loss of a step's scored tokens is what
// gradients are of. Threads: nothing else may run the model meanwhile. Errors: kContract, as assert_trainable, before
// the first step; kInvalidArgument for options out of range, sequences that are none of this model's or have nothing
// scored, an optimizer that wants a closure; kUnsupported for a model under a policy that is not of those above;
// kContract where a loss or gradient is not finite. Of ranks also: kContract naming one that trains otherwise than rank
// 0, or has other parameters, at the start or in the end; kUnsupported for parameters that are not on the CPU; the
// group's.
std::vector<double> train(const models::CausalLM& model, torch::optim::Optimizer& optimizer,
                          std::span<const training::Sequence> sequences, const TrainOptions& options = {});

}  // namespace halfbyte
