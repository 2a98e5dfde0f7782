#include <halfbyte/accuracy.h>

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "models/architectures/architecture.h"
#include "models/evaluation/evaluation.h"
#include "models/evaluation/statistics.h"
#include "models/evaluation/token_scores.h"
#include "models/sessions/pass_watch.h"
#include "quant/operators/translate.h"

namespace halfbyte {
namespace models {
namespace {

std::vector<TokenScore> score_batch(const WindowBatch& batch, LogitSource& model, LogitSource* original,
                                    std::int64_t step) {
  model.begin(batch);
  if (original) original->begin(batch);
  const at::Tensor targets = batch.targets();
  const std::int64_t context = batch.tokens.size(1);
  std::vector<TokenScore> out;
  for (std::int64_t begin = 0; begin < batch.rows(); begin += step) {
    const std::int64_t count = std::min(step, batch.rows() - begin);
    const at::Tensor ours = model.rows(begin, count);
    const at::Tensor theirs = original ? original->rows(begin, count) : at::Tensor();
    for (TokenScore& score : score_tokens(ours, theirs, targets.narrow(0, begin, count))) {
      const auto row = static_cast<std::int64_t>(out.size());
      score.window = batch.first_window + row / batch.scored;
      score.position = context - batch.scored + row % batch.scored;
      out.push_back(score);
    }
  }
  return out;
}

}  // namespace

WindowBatch batch_of(const Windows& windows, std::int64_t first, std::int64_t count) {
  TokenIds tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const TokenIds window = windows.window(first + i);
    tokens.insert(tokens.end(), window.begin(), window.end());
  }
  return {at::tensor(tokens, at::kLong).view({count, -1}), first, windows.scored};
}

void for_each_batch(const Windows& windows, const PerplexityOptions& options, std::int64_t passes,
                    const std::function<void(const WindowBatch&)>& run) {
  const std::int64_t step = windows_at_once(windows.context), total = passes * windows.count * windows.context;
  std::int64_t done = 0, pass_tokens = 0;
  const PassWatch watch(options.stop, [&](std::int64_t layer, std::int64_t layers) {
    if (options.progress) options.progress(done + pass_tokens * layer / layers, total);
    if (layer == layers) done += pass_tokens;
  });
  for (std::int64_t first = 0; first < windows.count; first += step) {
    const WindowBatch batch = batch_of(windows, first, std::min(step, windows.count - first));
    pass_tokens = batch.tokens.numel();
    run(batch);
  }
}

void run_through(const Windows& windows, std::int64_t vocab_size, LogitSource& source,
                 const PerplexityOptions& options) {
  const std::int64_t step = rows_at_once(vocab_size);
  for_each_batch(windows, options, 1, [&](const WindowBatch& batch) {
    source.begin(batch);
    for (std::int64_t begin = 0; begin < batch.rows(); begin += step)
      source.rows(begin, std::min(step, batch.rows() - begin));
  });
}

Accuracy measure(const Windows& windows, std::int64_t vocab_size, LogitSource& model, LogitSource* original,
                 std::int64_t passes, const PerplexityOptions& options) {
  Accuracy accuracy;
  const std::int64_t step = rows_at_once(vocab_size);
  try {
    for_each_batch(windows, options, passes, [&](const WindowBatch& batch) {
      const std::vector<TokenScore> scores = score_batch(batch, model, original, step);
      accuracy.scores.insert(accuracy.scores.end(), scores.begin(), scores.end());
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted || accuracy.scores.empty()) throw;
    accuracy.was_stopped = true;
  }
  summarize(accuracy, original != nullptr);
  return accuracy;
}

}  // namespace models

Accuracy evaluate(const models::CausalLM& model, const TokenIds& text, const TokenIds& prefix,
                  const PerplexityOptions& options, const models::CausalLM* original) {
  using namespace models;
  const c10::InferenceMode guard;
  if (original) check_vocabularies(model, *original);
  const Windows windows = windows_for(model, text, prefix, options);
  if (original) windows_for(*original, text, prefix, options);
  return translated([&] { return "evaluating under " + model.policy().name() + " on " + model.device().str(); },
                    [&] {
                      ModelLogits ours(model);
                      std::optional<ModelLogits> theirs;
                      if (original) theirs.emplace(*original);
                      return measure(windows, model.config().vocab_size, ours, theirs ? &*theirs : nullptr,
                                     original ? 2 : 1, options);
                    });
}

}  // namespace halfbyte
