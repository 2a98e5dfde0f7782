#include "models/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "models/profile/recorder.h"
#include "quant/activations.h"

namespace halfbyte::models {
namespace {

float largest(std::span<const float> logits) { return logits[quant::first_largest(logits)]; }

// Whether `a` is chosen after `b`.
bool is_later(const std::pair<double, std::int64_t>& a, const std::pair<double, std::int64_t>& b) {
  return a.first != b.first ? a.first < b.first : a.second > b.second;
}

}  // namespace

double log_probability(std::span<const float> logits, std::int64_t token) {
  const double top = largest(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - top - std::log(sum);
}

Sampler::Sampler(const Sampling& sampling, std::uint64_t seed, std::uint64_t stream)
    : sampling_(sampling), random_(seed * 0x9E3779B97F4A7C15ULL + stream) {}

void Sampler::see(std::span<const std::int64_t> tokens) {
  if (sampling_.repetition_penalty == 1.0) return;
  if (tokens.size() == 1 && std::ranges::binary_search(seen_, tokens.front())) return;
  seen_.insert(seen_.end(), tokens.begin(), tokens.end());
  std::ranges::sort(seen_);
  seen_.erase(std::ranges::unique(seen_).begin(), seen_.end());
}

bool Sampler::changes_logits() const noexcept {
  return !seen_.empty() || !chosen_.empty() || !sampling_.logit_bias.empty();
}

// Source: transformers, RepetitionPenaltyLogitsProcessor; and OpenAI's description of the two others.
std::span<const float> Sampler::penalised(std::span<const float> logits) {
  if (!changes_logits()) return logits;
  const auto penalty = static_cast<float>(sampling_.repetition_penalty);
  penalised_.assign(logits.begin(), logits.end());
  const auto change = [&](std::int64_t token, const auto& how) {  // a vocabulary may be larger than what is chosen from
    if (token < static_cast<std::int64_t>(penalised_.size())) how(penalised_[static_cast<std::size_t>(token)]);
  };
  for (const auto& [token, bias] : sampling_.logit_bias) change(token, [&](float& logit) { logit += bias; });
  for (const std::int64_t token : seen_)
    change(token, [&](float& logit) { logit = logit < 0 ? logit * penalty : logit / penalty; });
  for (const auto& [token, times] : chosen_) {
    const double less = sampling_.presence_penalty + sampling_.frequency_penalty * static_cast<double>(times);
    change(token, [&](float& logit) { logit -= static_cast<float>(less); });
  }
  return penalised_;
}

std::int64_t Sampler::sample(std::span<const float> logits) {
  const std::int64_t token = draw(logits);
  note_chosen(token);
  return token;
}

std::int64_t Sampler::draw(std::span<const float> raw) {
  const WorkScope work(WorkKind::kSampling);
  const std::span<const float> logits = penalised(raw);
  return sampling_.temperature == 0.0 ? static_cast<std::int64_t>(quant::first_largest(logits))
                                      : sample_nucleus(logits);
}

void Sampler::note_chosen(std::int64_t token) {
  see({&token, 1});
  if (sampling_.presence_penalty != 0 || sampling_.frequency_penalty != 0) ++chosen_[token];
}

// What the last of the top-k weighs; 0 where all tokens count.
double Sampler::least_of_top_k() {
  const auto k = static_cast<std::size_t>(sampling_.top_k);
  if (k == 0 || k >= weights_.size()) return 0;
  largest_weights_ = weights_;
  const auto last = largest_weights_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::ranges::nth_element(largest_weights_, last, std::greater());
  return *last;
}

// Source: Meta's llama/generation.py, sample_top_p: a token stays while the mass before it does not exceed top_p; and
// transformers, TopKLogitsWarper (before it) and MinPLogitsWarper (after it).
std::int64_t Sampler::sample_nucleus(std::span<const float> logits) {
  const double top = largest(logits);
  weights_.resize(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id)
    weights_[id] = std::exp((static_cast<double>(logits[id]) - top) / sampling_.temperature);
  const double least_of_k = least_of_top_k();
  double total = 0;
  for (const double weight : weights_) total += weight >= least_of_k ? weight : 0;
  const double mass = sampling_.top_p * total;
  // All that weigh less than this make less than 1 - top_p together: the nucleus is among the others.
  const double least = 0.999 * (1.0 - sampling_.top_p) * total / static_cast<double>(logits.size());
  const double floor = std::max({least, least_of_k, sampling_.min_p});  // the most likely weighs 1
  candidates_.clear();
  double sum = 0;  // of the candidates
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (weights_[id] < floor || weights_[id] == 0) continue;
    candidates_.emplace_back(weights_[id], static_cast<std::int64_t>(id));
    sum += weights_[id];
  }
  std::ranges::make_heap(candidates_, is_later);
  const double chance = static_cast<double>(random_() >> 11) * 0x1.0p-53;
  if (sampling_.top_p >= 1) return drawn(chance * sum);
  double kept = 0;
  std::size_t count = 0;  // of the nucleus, which gathers at the end, its first token last
  while (count < candidates_.size() && kept <= mass) {
    std::ranges::pop_heap(candidates_.begin(), candidates_.end() - static_cast<std::ptrdiff_t>(count), is_later);
    kept += candidates_[candidates_.size() - ++count].first;
  }
  double target = chance * kept;
  for (std::size_t i = 1; i <= count; ++i) {
    const auto& [weight, id] = candidates_[candidates_.size() - i];
    target -= weight;
    if (target < 0) return id;
  }
  return candidates_[candidates_.size() - count].second;
}

// Of all candidates, a heap: the likeliest first, so that few are looked at.
std::int64_t Sampler::drawn(double target) {
  while (true) {
    const auto [weight, id] = candidates_.front();
    target -= weight;
    if (target < 0 || candidates_.size() == 1) return id;
    std::ranges::pop_heap(candidates_, is_later);
    candidates_.pop_back();
  }
}

}  // namespace halfbyte::models
