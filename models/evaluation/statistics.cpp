#include "models/evaluation/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace halfbyte::models {

double student95(std::int64_t degrees) {
  constexpr std::array<double, 9> kFew = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  if (degrees < 1) return 0;
  if (degrees <= static_cast<std::int64_t>(kFew.size())) return kFew[static_cast<std::size_t>(degrees - 1)];
  // Source: the expansion of Cornish and Fisher around the normal quantile z, to the third order in 1 / degrees.
  const double z = 1.959964, n = static_cast<double>(degrees);
  const double first = (std::pow(z, 3) + z) / 4, second = (5 * std::pow(z, 5) + 16 * std::pow(z, 3) + 3 * z) / 96;
  const double third = (3 * std::pow(z, 7) + 19 * std::pow(z, 5) + 17 * std::pow(z, 3) - 15 * z) / 384;
  return z + (first + (second + third / n) / n) / n;
}

namespace {

std::vector<double> window_means(std::span<const TokenScore> scores,
                                 const std::function<double(const TokenScore&)>& value) {
  std::vector<double> means;
  for (auto begin = scores.begin(); begin != scores.end();) {
    const auto end = std::find_if(begin, scores.end(), [&](const TokenScore& s) { return s.window != begin->window; });
    double sum = 0;
    for (auto score = begin; score != end; ++score) sum += value(*score);
    means.push_back(sum / static_cast<double>(end - begin));
    begin = end;
  }
  return means;
}

}  // namespace

Interval mean_over_windows(std::span<const TokenScore> scores, const std::function<double(const TokenScore&)>& value) {
  const std::vector<double> means = window_means(scores, value);
  const auto count = static_cast<double>(means.size());
  double mean = 0, squares = 0;
  for (const double x : means) mean += x / count;
  for (const double x : means) squares += (x - mean) * (x - mean);
  if (means.size() < 2) return {mean, mean, mean};
  const double error = std::sqrt(squares / (count - 1) / count);
  const double reach = student95(static_cast<std::int64_t>(means.size()) - 1) * error;
  return {mean, mean - reach, mean + reach};
}

Interval exponential(const Interval& mean) { return {std::exp(mean.value), std::exp(mean.low), std::exp(mean.high)}; }

double quantile(std::span<double> values, double share) {
  const auto rank = std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())));
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(rank));
  return values[rank];
}

namespace {

// A share stays one.
Interval share(const Interval& mean) { return {mean.value, std::max(mean.low, 0.0), std::min(mean.high, 1.0)}; }

Loss loss_of(std::span<const TokenScore> scores) {
  using Score = const TokenScore&;
  const auto mean = [&](const std::function<double(Score)>& value) { return mean_over_windows(scores, value); };
  Loss loss;
  loss.original_perplexity = exponential(mean([](Score s) { return -s.original_log_probability; }));
  loss.perplexity_ratio = exponential(mean([](Score s) { return s.original_log_probability - s.log_probability; }));
  loss.kl_mean = mean([](Score s) { return s.divergence; });
  loss.top1_agreement = share(mean([](Score s) { return s.choice == s.original_choice ? 1.0 : 0.0; }));
  loss.top5_agreement =
      share(mean([](Score s) { return static_cast<double>(s.shared_top) / static_cast<double>(kTopTokens); }));
  std::vector<double> divergences;
  for (Score score : scores) divergences.push_back(score.divergence);
  loss.kl_median = quantile(divergences, 0.5);
  loss.kl_p99 = quantile(divergences, 0.99);
  loss.kl_p999 = quantile(divergences, 0.999);
  loss.kl_largest = *std::ranges::max_element(divergences);
  return loss;
}

}  // namespace

void summarize(Accuracy& accuracy, bool with_original) {
  accuracy.tokens = static_cast<std::int64_t>(accuracy.scores.size());
  accuracy.windows = accuracy.scores.back().window + 1;
  accuracy.perplexity =
      exponential(mean_over_windows(accuracy.scores, [](const TokenScore& s) { return -s.log_probability; }));
  if (with_original) accuracy.loss = loss_of(accuracy.scores);
}

}  // namespace halfbyte::models
