// How tokens are chosen from logits, against a slow reference.
#include "models/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "tests/catch.h"

namespace halfbyte {
namespace {

TEST_CASE("nucleus sampling keeps the smallest set that exceeds top_p", "[generate]") {
  const float logits[] = {std::log(0.5F), std::log(0.3F), std::log(0.15F), std::log(0.05F)};
  models::Sampler narrow({.temperature = 1, .top_p = 0.49}, 1, 0);
  models::Sampler wide({.temperature = 1, .top_p = 0.79}, 1, 0);
  int counts[4] = {};
  for (int i = 0; i < 2000; ++i) {
    CHECK(narrow.sample(logits) == 0);
    ++counts[wide.sample(logits)];
  }
  CHECK(counts[0] == Approx(2000 * 0.5 / 0.8).margin(120));
  CHECK(counts[2] == 0);
  CHECK(counts[3] == 0);
  CHECK(models::log_probability(logits, 1) == Approx(std::log(0.3)).margin(1e-6));
}

// As transformers does it: each step masks logits for the next, in a table sorted by them.
std::vector<double> slow_probabilities(std::vector<float> logits, const std::vector<std::int64_t>& seen,
                                       const models::Sampling& how) {
  const std::set<std::int64_t> once(seen.begin(), seen.end());
  for (const std::int64_t id : once) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0 ? logit * static_cast<float>(how.repetition_penalty)
                      : logit / static_cast<float>(how.repetition_penalty);
  }
  std::vector<double> scores(logits.begin(), logits.end());
  for (double& score : scores) score /= how.temperature;
  const auto softmax = [&] {
    const double top = *std::ranges::max_element(scores);
    std::vector<double> p;
    for (const double score : scores) p.push_back(std::exp(score - top));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
    return p;
  };
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  if (how.top_k > 0 && how.top_k < std::ssize(scores)) {
    std::vector<double> sorted = scores;
    std::ranges::sort(sorted, std::greater());
    const double last = sorted[static_cast<std::size_t>(how.top_k - 1)];
    for (double& score : scores) score = score < last ? kOut : score;
  }
  const std::vector<double> after_k = softmax();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    double before = 0;  // what is more likely, or as likely with a lower id
    for (std::size_t j = 0; j < scores.size(); ++j)
      before += after_k[j] > after_k[i] || (after_k[j] == after_k[i] && j < i) ? after_k[j] : 0;
    if (before > how.top_p + 1e-12) scores[i] = kOut;
  }
  const std::vector<double> after_p = softmax();
  const double least = how.min_p * *std::ranges::max_element(after_p);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = after_p[i] < least ? kOut : scores[i];
  return softmax();
}

TEST_CASE("sampling draws from the distribution that the slow reference has", "[generate]") {
  std::mt19937 random(3);
  const auto unit = [&] { return static_cast<double>(random() >> 8) * 0x1p-24; };
  for (int trial = 0; trial < 200; ++trial) {
    models::Sampling how{.temperature = 0.3 + 2 * unit()};
    if (random() % 2) how.repetition_penalty = 0.5 + 1.5 * unit();
    if (random() % 2) how.top_k = 1 + random() % 8;
    if (random() % 2) how.top_p = 0.05 + 0.9 * unit();
    if (random() % 2) how.min_p = unit();
    std::vector<float> logits;
    for (int i = 0; i < 12; ++i) logits.push_back(static_cast<float>(std::floor(40 * unit() - 20) / 8));  // with equals
    std::vector<std::int64_t> seen;
    for (auto i = random() % 6; i > 0; --i) seen.push_back(random() % 12);
    const std::vector<double> wanted = slow_probabilities(logits, seen, how);
    std::vector<double> counts(12);
    constexpr int kDraws = 400;
    for (int draw = 0; draw < kDraws; ++draw) {
      models::Sampler sampler(how, static_cast<std::uint64_t>(draw), 5);  // anew: it has seen what it drew
      sampler.see(seen);
      counts[static_cast<std::size_t>(sampler.sample(logits))] += 1.0 / kDraws;
    }
    for (std::size_t id = 0; id < 12; ++id) {
      INFO("trial " << trial << ", id " << id);
      CHECK((counts[id] == 0 || wanted[id] > 0));
      CHECK(counts[id] == Approx(wanted[id]).margin(5 * std::sqrt(0.25 / kDraws)));
    }
  }
}

TEST_CASE("a repetition penalty counts what was drawn, and the greedy choice heeds it", "[generate]") {
  const float logits[] = {2.0F, 1.9F, -1.0F, 1.8F};
  models::Sampler sampler({.repetition_penalty = 2, .temperature = 0}, 0, 0);
  const std::int64_t prompt[] = {1, 1};
  sampler.see(prompt);
  CHECK(sampler.sample(logits) == 0);
  CHECK(sampler.sample(logits) == 3);
  CHECK(sampler.sample(logits) == 0);  // all but the negative one are halved now
  models::Sampler plain({.temperature = 0}, 0, 0);
  plain.see(prompt);
  CHECK(plain.sample(logits) == 0);
  CHECK(plain.sample(logits) == 0);
}

}  // namespace
}  // namespace halfbyte
