#include "models/serving/choices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "quant/activations.h"

namespace halfbyte::serving {
namespace {

// Drawn so often before all tokens are looked at.
constexpr int kTries = 8;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// log(sum(exp(logits))).
double log_sum(std::span<const float> logits) {
  const double top = logits[quant::first_largest(logits)];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

std::vector<LikelyToken> likeliest(std::span<const float> logits, double norm, std::size_t count) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto is_before = [&](std::int64_t a, std::int64_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(ids.begin(), end, ids.end(), is_before);
  std::vector<LikelyToken> out;
  for (auto id = ids.begin(); id != end; ++id) out.push_back({*id, logit(*id) - norm});
  return out;
}

// What is drawn is tried first where most tokens may come: leaving out one after another what may not comes to the same
// distribution as leaving out all, but for what top_k, top_p and min_p count.
std::int64_t choose_filtered(Sequence& sequence, std::span<const float> logits) {
  TokenFilter& filter = *sequence.request.filter;
  std::vector<float> left(logits.begin(), logits.end());
  for (int tries = filter.is_loose() ? kTries : 0; tries > 0; --tries) {
    const std::int64_t token = sequence.sampler.draw(left);
    if (filter.allows(token, sequence.room)) return token;
    left[static_cast<std::size_t>(token)] = kNever;
  }
  std::vector<bool> allowed;
  filter.allowed(sequence.room, allowed);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (i >= allowed.size() || !allowed[i]) left[i] = kNever;
  }
  if (std::ranges::find(allowed, true) == allowed.end()) return -1;
  return sequence.sampler.draw(left);
}

}  // namespace

ChosenToken choose(Sequence& sequence, std::span<const float> all) {
  const auto known = static_cast<std::size_t>(sequence.request.vocabulary);
  const std::span<const float> logits = known > 0 && known < all.size() ? all.first(known) : all;
  ChosenToken out;
  if (sequence.request.filter) {
    out.token = choose_filtered(sequence, logits);
    if (out.token < 0) return out;
    sequence.request.filter->choose(out.token);
    sequence.sampler.note_chosen(out.token);
  } else {
    out.token = sequence.sampler.sample(logits);
  }
  const int wanted = sequence.request.top_logprobs;
  if (wanted < 0) return out;
  const double norm = log_sum(logits);
  out.logprob = logits[static_cast<std::size_t>(out.token)] - norm;
  out.likeliest = likeliest(logits, norm, static_cast<std::size_t>(wanted));
  return out;
}

}  // namespace halfbyte::serving
