#include <halfbyte/finetune.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <utility>

#include <ATen/ops/tensor.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <halfbyte/calibrate.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/lora.h>

#include "convert/adapters/peft_files.h"
#include "convert/output/destination.h"
#include "loader/thread_count.h"
#include "models/architectures/model_config.h"
#include "models/modules/pass_watch.h"
#include "models/training/loss.h"

namespace halfbyte::convert {
namespace {

using Sequences = std::vector<std::vector<std::int64_t>>;
using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "finetune: " + problem);
}

void check(const FinetuneOptions& options) {
  if (options.steps < 1 || options.batch < 1 || options.context < 2)
    refuse("steps and batch are 1 at least, the context 2");
  if (!(options.learning_rate > 0) || !std::isfinite(options.learning_rate))
    refuse("the learning rate must be positive");
  if (options.warmup < 0 || !(options.weight_decay >= 0) || !(options.clip >= 0))
    refuse("warmup, weight decay and clip are 0 at least");
}

// Keys of one layer that another reads come from no pass of its own.
void check(const models::ModelConfig& config) {
  const auto shares = [](const models::LayerConfig& layer) { return layer.keys_of >= 0; };
  if (std::ranges::none_of(config.layers, shares)) return;
  throw Error(ErrorCode::kUnsupported,
              "finetune: layers of this model share keys, through which no gradients are made yet");
}

double rate_of(const FinetuneOptions& options, std::int64_t step) {
  if (step < options.warmup)
    return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  const double done = static_cast<double>(step - options.warmup) /
                      static_cast<double>(std::max<std::int64_t>(1, options.steps - options.warmup));
  if (options.schedule == Schedule::kLinear) return options.learning_rate * (1 - done);
  if (options.schedule == Schedule::kCosine)
    return options.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
  return options.learning_rate;
}

// Which sequence comes next: all of them once, in an order of the seed's, before any comes again.
class Order {
 public:
  Order(std::size_t count, std::uint64_t seed) : random_(seed), indices_(count) {
    std::iota(indices_.begin(), indices_.end(), std::size_t{0});
  }
  std::size_t next() {
    if (at_ == 0) shuffle();
    return indices_[std::exchange(at_, (at_ + 1) % indices_.size())];
  }

 private:
  void shuffle() {  // std::shuffle is another in every library
    for (std::size_t i = indices_.size(); i > 1; --i) std::swap(indices_[i - 1], indices_[random_() % i]);
  }

  std::mt19937_64 random_;
  std::vector<std::size_t> indices_;
  std::size_t at_ = 0;
};

class Trainer {
 public:
  Trainer(const models::CausalLM& model, const FinetuneOptions& options, const Sequences& sequences)
      : model_(model),
        options_(options),
        sequences_(sequences),
        lora_(model, options.lora),
        optimizer_(lora_.parameters(),
                   torch::optim::AdamWOptions(options.learning_rate).weight_decay(options.weight_decay)),
        order_(sequences.size(), options.seed) {}

  const Lora& lora() const noexcept { return lora_; }

  FinetuneSummary run() {
    const Clock::time_point start = Clock::now();
    const models::PassWatch watch(options_.stop);
    for (std::int64_t step = 0; step < options_.steps && !out_.was_stopped; ++step) {
      try {
        do_step(step);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInterrupted) throw;
        out_.was_stopped = true;
      }
    }
    out_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const at::Tensor& one : lora_.parameters()) out_.parameters += one.numel();
    return std::move(out_);
  }

 private:
  void do_step(std::int64_t step) {
    for (auto& group : optimizer_.param_groups())
      static_cast<torch::optim::AdamWOptions&>(group.options()).lr(rate_of(options_, step));
    optimizer_.zero_grad();
    std::vector<const std::vector<std::int64_t>*> chosen;
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < options_.batch; ++i) {
      chosen.push_back(&sequences_[order_.next()]);
      tokens += static_cast<std::int64_t>(chosen.back()->size()) - 1;
    }
    double loss = 0;
    for (const auto* sequence : chosen) loss += backward(*sequence, step, tokens);
    if (options_.clip > 0) torch::nn::utils::clip_grad_norm_(lora_.parameters(), options_.clip);
    optimizer_.step();
    ++out_.steps;
    out_.tokens += tokens;
    out_.losses.push_back(loss);
    if (options_.on_step) options_.on_step(out_.steps, loss);
  }

  // Adds the gradients of the mean over all tokens of the step. Gives the sequence's share of that mean.
  double backward(const std::vector<std::int64_t>& sequence, std::int64_t step, std::int64_t tokens) {
    const at::Tensor all = at::tensor(sequence, at::kLong);
    const auto count = static_cast<std::int64_t>(sequence.size()) - 1;
    const Lora::Scope scope(lora_, step);
    const at::Tensor loss =
        training::summed_loss(model_, all.narrow(0, 0, count), all.narrow(0, 1, count)) / static_cast<double>(tokens);
    loss.backward();
    const double value = loss.item<double>();
    if (!std::isfinite(value))
      throw Error(ErrorCode::kContract, "finetune: the loss of step " + std::to_string(step + 1) +
                                            " is no number; a lower learning rate, or clip, keeps it one");
    return value;
  }

  const models::CausalLM& model_;
  const FinetuneOptions& options_;
  const Sequences& sequences_;
  Lora lora_;
  torch::optim::AdamW optimizer_;
  Order order_;
  FinetuneSummary out_;
};

}  // namespace

FinetuneSummary finetune(const fs::path& checkpoint, const fs::path& text, const fs::path& destination,
                         const FinetuneOptions& options) {
  check(options);
  check_apart(checkpoint, destination_path(destination));
  if (!options.overwrite && fs::exists(destination))
    throw Error(ErrorCode::kAlreadyExists,
                destination.string() + ": exists already; " + Option::kOverwrite + " replaces it");
  if (options.threads > 0) set_thread_count(options.threads);
  CalibrationTokens read =
      read_calibration_text(text, checkpoint, {.tokens = std::int64_t{1} << 40, .context = options.context});
  std::erase_if(read.sequences, [](const auto& sequence) { return sequence.size() < 2; });
  if (read.sequences.empty()) refuse("the text has no sequence of two tokens");
  const Model model = load_low_bit(checkpoint, {.dtype = options.dtype, .compute = ComputeMode::kFloat});
  check(model.config());
  Trainer trainer(model.module(), options, read.sequences);
  FinetuneSummary out = trainer.run();
  out.sequences = static_cast<std::int64_t>(read.sequences.size());
  out.notes = std::move(read.notes);
  if (out.steps > 0) write_peft_adapter(trainer.lora(), checkpoint.string(), destination, options.overwrite);
  return out;
}

}  // namespace halfbyte::convert
