#include <halfbyte/evaluate.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "models/architectures/architecture.h"
#include "models/evaluation/windows.h"
#include "models/modules/decoder.h"
#include "models/parallel/summed.h"
#include "models/sessions/pass_watch.h"
#include "models/sessions/session.h"
#include "quant/operators/translate.h"

namespace halfbyte {
namespace {

using models::CausalLM;
using models::Windows;

// Positions that are scored between two looks at the watch.
constexpr std::int64_t kScoredRows = 64;

// What the last `scored` tokens are scored by, some positions at a time. Shapes: (kScoredRows at most, vocab_size),
// float32, on the CPU.
std::vector<at::Tensor> scored_logits(const CausalLM& model, const TokenIds& tokens, std::int64_t scored) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  models::Session session = model.make_session();
  const at::Tensor ids = at::tensor(tokens).unsqueeze(0).to(model.device());
  const at::Tensor hidden = model.hidden(ids, session).select(0, 0).narrow(0, size - 1 - scored, scored);
  const auto rows = [&](std::int64_t begin) {
    models::PassWatch::check();
    return model.head(hidden.narrow(0, begin, std::min(kScoredRows, scored - begin))).cpu();
  };
  std::vector<at::Tensor> logits;
  for (std::int64_t begin = 0; begin < scored; begin += kScoredRows) {
    logits.push_back(translated([&] { return "logits of " + describe(ids) + " under " + model.policy().name(); },
                                [&] { return rows(begin); }));
  }
  return logits;
}

struct Tally {
  double negative_log_likelihood = 0;
  double reference_negative_log_likelihood = 0;
  std::int64_t tokens = 0;
  std::int64_t agreements = 0;
  std::vector<double> divergences;
  double largest_difference = 0;
  double largest_logit = 0;  // the reference's
  std::int64_t run_tokens = 0;
  double seconds = 0;
  std::int64_t windows = 0;
  bool was_stopped = false;
};

double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

// In float64, so that a divergence of 1e-5 is no rounding error.
at::Tensor log_probabilities_of(const at::Tensor& logits) { return logits.log_softmax(-1, at::kDouble); }

double negative_log_likelihood(const at::Tensor& log_probabilities, const at::Tensor& targets) {
  return -log_probabilities.gather(1, targets.unsqueeze(1)).sum().item<double>();
}

void compare(const at::Tensor& model, const at::Tensor& reference, Tally& tally) {
  const at::Tensor divergence = (reference.exp() * (reference - model)).sum(-1).contiguous();
  const double* values = divergence.const_data_ptr<double>();
  tally.divergences.insert(tally.divergences.end(), values, values + divergence.numel());
  tally.agreements += model.argmax(-1).eq(reference.argmax(-1)).sum().item<std::int64_t>();
}

// Shapes: logits of some positions (rows, vocab_size), targets (rows).
void score_rows(const at::Tensor& logits, const at::Tensor& reference_logits, const at::Tensor& targets, Tally& tally) {
  const at::Tensor ours = log_probabilities_of(logits);
  tally.negative_log_likelihood += negative_log_likelihood(ours, targets);
  tally.tokens += ours.size(0);
  if (!reference_logits.defined()) return;
  tally.largest_difference = std::max(tally.largest_difference, largest(logits - reference_logits));
  tally.largest_logit = std::max(tally.largest_logit, largest(reference_logits));
  const at::Tensor theirs = log_probabilities_of(reference_logits);
  tally.reference_negative_log_likelihood += negative_log_likelihood(theirs, targets);
  compare(ours, theirs, tally);
}

// Of one window. Errors: kInterrupted when the watch says so.
Tally score(const CausalLM& model, const CausalLM* reference, const TokenIds& tokens, std::int64_t scored) {
  Tally tally;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<at::Tensor> logits = scored_logits(model, tokens, scored);
  tally.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  tally.run_tokens = static_cast<std::int64_t>(tokens.size());
  tally.windows = 1;
  const auto reference_logits =
      reference ? scored_logits(*reference, tokens, scored) : std::vector<at::Tensor>(logits.size());
  const at::Tensor targets = at::tensor(tokens).narrow(0, static_cast<std::int64_t>(tokens.size()) - scored, scored);
  const std::vector<at::Tensor> parts = targets.split(kScoredRows);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    models::PassWatch::check();
    score_rows(logits[i], reference_logits[i], parts[i], tally);
  }
  return tally;
}

void add(const Tally& window, Tally& all) {
  all.negative_log_likelihood += window.negative_log_likelihood;
  all.reference_negative_log_likelihood += window.reference_negative_log_likelihood;
  all.tokens += window.tokens;
  all.agreements += window.agreements;
  all.divergences.insert(all.divergences.end(), window.divergences.begin(), window.divergences.end());
  all.largest_difference = std::max(all.largest_difference, window.largest_difference);
  all.largest_logit = std::max(all.largest_logit, window.largest_logit);
  all.run_tokens += window.run_tokens;
  all.seconds += window.seconds;
  all.windows += window.windows;
}

Divergence summarize(Tally& tally) {
  Divergence result;
  if (tally.largest_logit > 0) result.max_logit_difference = tally.largest_difference / tally.largest_logit;
  for (const double value : tally.divergences) result.kl_mean += value;
  const auto count = tally.divergences.size();
  result.kl_mean /= static_cast<double>(count);
  const std::size_t rank = std::min(count - 1, count * 99 / 100);
  std::ranges::nth_element(tally.divergences, tally.divergences.begin() + static_cast<std::ptrdiff_t>(rank));
  result.kl_p99 = tally.divergences[rank];
  result.top1_agreement = static_cast<double>(tally.agreements) / static_cast<double>(count);
  return result;
}

// How far windows are, from what a watch hears of the layers of their passes.
class WindowProgress {
 public:
  WindowProgress(const PerplexityOptions& options, const Windows& windows, std::int64_t models)
      : options_(options), window_(windows.context), total_(windows.count * models * window_) {}
  void layer_done(std::int64_t done, std::int64_t layers) {
    if (options_.progress) options_.progress(passes_ * window_ + window_ * done / layers, total_);
    if (done == layers) ++passes_;
  }

 private:
  const PerplexityOptions& options_;
  std::int64_t window_, total_;  // tokens
  std::int64_t passes_ = 0;      // finished
};

Tally tally_windows(const CausalLM& model, const TokenIds& text, const TokenIds& prefix,
                    const PerplexityOptions& options, const CausalLM* reference) {
  const Windows windows = windows_for(model, text, prefix, options);
  if (reference) windows_for(*reference, text, prefix, options);
  Tally tally;
  WindowProgress progress(options, windows, reference ? 2 : 1);
  const models::PassWatch watch(options.stop,
                                [&](std::int64_t done, std::int64_t layers) { progress.layer_done(done, layers); });
  try {
    for (std::int64_t index = 0; index < windows.count; ++index)
      add(score(model, reference, windows.window(index), windows.scored), tally);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted || tally.windows == 0) throw;
    tally.was_stopped = true;
  }
  return tally;
}

}  // namespace

PerplexityResult perplexity(const CausalLM& model, const TokenIds& text, const TokenIds& prefix,
                            const PerplexityOptions& options, const CausalLM* reference) {
  const c10::InferenceMode guard;
  if (reference) models::check_vocabularies(model, *reference);
  models::check_same_tokens(model.group_in_step(), text);
  Tally tally = translated([&] { return "evaluating under " + model.policy().name() + " on " + model.device().str(); },
                           [&] { return tally_windows(model, text, prefix, options, reference); });
  const auto scored = static_cast<double>(tally.tokens);
  PerplexityResult result;
  result.perplexity = std::exp(tally.negative_log_likelihood / scored);
  result.tokens = tally.tokens;
  result.windows = tally.windows;
  result.was_stopped = tally.was_stopped;
  result.tokens_per_s = static_cast<double>(tally.run_tokens) / tally.seconds;
  if (!reference) return result;
  result.reference_perplexity = std::exp(tally.reference_negative_log_likelihood / scored);
  result.divergence = summarize(tally);
  return result;
}

}  // namespace halfbyte
