#include "tools/model/timed_runs.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>

#include "models/architectures/model_config.h"
#include "models/generation/sampler.h"
#include "models/modules/key_value_cache.h"
#include "models/profile/recorder.h"
#include "models/sessions/session.h"

namespace halfbyte::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Tokens of the depth that go through the model at once.
constexpr std::int64_t kChunk = 512;

constexpr std::int64_t kTracedSteps = 4;

// `record`: null, or where the time went.
template <class Work>
double seconds_of(const Work& work, ProfileRecord* record) {
  std::optional<Profile> profile;
  if (record) profile.emplace(ProfileOptions{.traced_passes = kTracedSteps});
  const auto start = Clock::now();
  work();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (record) *record = profile->record();
  return seconds;
}

// Some token ids, the same in every run. Shape: (batch, tokens).
at::Tensor tokens_of(const models::CausalLM& model, std::int64_t batch, std::int64_t tokens) {
  const at::Tensor ids = at::arange(batch * tokens, at::kLong).mul(7919).remainder(model.config().vocab_size);
  return ids.view({batch, tokens}).to(model.device());
}

// As generate() does, which hands every token to its caller. GPUs answer before they are done; values on the CPU are
// there only then. LibTorch's argmax of several rows would wake OpenMP's threads, which then look for more on the cores
// that ours want. Shapes: logits (batch, 1, vocab_size) -> (batch, 1).
at::Tensor likeliest(const at::Tensor& logits) {
  const models::WorkScope work(WorkKind::kSampling);
  const at::Tensor rows = logits.flatten(0, 1).cpu().contiguous();
  const auto size = static_cast<std::size_t>(rows.size(1));
  models::Sampler greedy({.temperature = 0}, /*seed=*/0, /*stream=*/0);
  std::vector<std::int64_t> ids;
  for (std::int64_t row = 0; row < rows.size(0); ++row)
    ids.push_back(greedy.sample({rows.const_data_ptr<float>() + static_cast<std::size_t>(row) * size, size}));
  return at::tensor(ids).unsqueeze(1).to(logits.device());
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct TimedRuns::State {
  State(const models::CausalLM& causal_lm, std::int64_t batch)
      : model(causal_lm), start(causal_lm.make_sessions(batch)) {}
  const models::CausalLM& model;
  std::vector<models::Session> start;  // after the depth
};

TimedRuns::~TimedRuns() = default;

TimedRuns::TimedRuns(const Model& model, const RunSizes& sizes) : sizes_(sizes) {
  const c10::InferenceMode guard;
  const models::CausalLM& module = model.module();
  state_ = std::make_unique<State>(module, sizes.batch);
  for (std::int64_t past = 0; past < sizes.depth; past += kChunk)
    module.hidden(tokens_of(module, sizes.batch, std::min(kChunk, sizes.depth - past)), state_->start);
}

RunTimes TimedRuns::run(RunProfile* profile) {
  const c10::InferenceMode guard;
  const models::CausalLM& model = state_->model;
  std::vector<models::Session> sessions;
  for (const models::Session& session : state_->start) sessions.push_back(session.fork());
  const at::Tensor prompt = tokens_of(model, sizes_.batch, sizes_.prompt_tokens);
  at::Tensor next;
  const auto prefill = [&] {
    next = likeliest(model.head(model.hidden(prompt, sessions).narrow(1, sizes_.prompt_tokens - 1, 1)));
  };
  const auto decode = [&] {
    for (std::int64_t i = 0; i < sizes_.gen_tokens; ++i) next = likeliest(model.head(model.hidden(next, sessions)));
  };
  const double prefill_time = seconds_of(prefill, profile ? &profile->prefill : nullptr);
  return {prefill_time, seconds_of(decode, profile ? &profile->decode : nullptr)};
}

double TimedRuns::cache_value_bytes() const {
  const c10::InferenceMode guard;
  const auto& layers = state_->model.config().layers;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const auto mixer = layers[layer].mixer;
    const bool is_cached = mixer == models::MixerKind::kAttention || mixer == models::MixerKind::kLatent;
    if (!is_cached || layers[layer].keys_of >= 0) continue;
    if (!state_->model.config().has_layer(static_cast<std::int64_t>(layer))) continue;
    const auto& cache = state_->start.front().state<models::KeyValueCache>(static_cast<std::int64_t>(layer));
    const models::KeyValueCache::Shape& shape = cache.shape();
    const std::int64_t values = shape.kv_heads * (shape.key_dim + shape.value_dim);
    return static_cast<double>(cache.bytes_of_token()) / static_cast<double>(values);
  }
  return 0;
}

}  // namespace halfbyte::cli
