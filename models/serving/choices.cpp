#include "models/serving/choices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quant/activations.h"

namespace halfbyte::serving {
namespace {

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

}  // namespace

ChosenToken choose(Sequence& sequence, std::span<const float> logits) {
  ChosenToken out{sequence.sampler.sample(logits)};
  const int wanted = sequence.request.top_logprobs;
  if (wanted < 0) return out;
  const double norm = log_sum(logits);
  out.logprob = logits[static_cast<std::size_t>(out.token)] - norm;
  out.likeliest = likeliest(logits, norm, static_cast<std::size_t>(wanted));
  return out;
}

}  // namespace halfbyte::serving
