#include "tools/model/timed_runs.h"

#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>

#include "models/architectures/model_config.h"

namespace halfbyte::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Tokens of the depth that go through the model at once.
constexpr std::int64_t kChunk = 512;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Some token ids, the same in every run. Shape: (batch, tokens).
at::Tensor tokens_of(const models::CausalLM& model, std::int64_t batch, std::int64_t tokens) {
  const at::Tensor ids = at::arange(batch * tokens, at::kLong).mul(7919).remainder(model.config().vocab_size);
  return ids.view({batch, tokens}).to(model.device());
}

// GPUs answer before they are done; a value on the CPU is there only then.
void wait_for(const at::Tensor& tensor) { tensor.cpu(); }

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

TimedRuns::TimedRuns(const models::CausalLM& model, const RunSizes& sizes)
    : model_(model),
      sizes_(sizes),
      session_(model.make_session(sizes.batch, sizes.depth + sizes.prompt_tokens + sizes.gen_tokens)) {
  for (std::int64_t past = 0; past < sizes.depth; past += kChunk)
    model_.hidden(tokens_of(model, sizes.batch, std::min(kChunk, sizes.depth - past)), session_);
}

RunTimes TimedRuns::run() {
  const at::Tensor prompt = tokens_of(model_, sizes_.batch, sizes_.prompt_tokens);
  const auto start = Clock::now();
  const at::Tensor hidden = model_.hidden(prompt, session_);
  at::Tensor next = model_.head(hidden.narrow(1, sizes_.prompt_tokens - 1, 1)).argmax(-1);
  wait_for(next);
  const double prefill = seconds_since(start);
  const auto decode_start = Clock::now();
  for (std::int64_t i = 0; i < sizes_.gen_tokens; ++i) {
    next = model_.head(model_.hidden(next, session_)).argmax(-1);
    wait_for(next);  // as generate() does, which hands every token to its caller
  }
  const double decode = seconds_since(decode_start);
  session_.advance(0, sizes_.batch, -(sizes_.prompt_tokens + sizes_.gen_tokens));
  return {prefill, decode};
}

double TimedRuns::cache_value_bytes() { return static_cast<double>(session_.keys(0, at::kFloat).element_size()); }

}  // namespace halfbyte::cli
