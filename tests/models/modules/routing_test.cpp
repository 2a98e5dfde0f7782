// Routing against a slow reference: token by token, by sorting.
#include "models/modules/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "tests/catch.h"

namespace halfbyte::models {
namespace {

using Values = std::vector<double>;

struct Taken {
  std::vector<std::size_t> experts;
  Values shares;
};

std::vector<std::size_t> by_score(const Values& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  return order;
}

Values softmax(const Values& x) {
  Values out;
  double sum = 0;
  for (const double value : x) sum += std::exp(value);
  for (const double value : x) out.push_back(std::exp(value) / sum);
  return out;
}

// Whether each expert's group is one of the best.
std::vector<bool> is_in_best_group(const Values& scores, const MoeConfig& config) {
  const auto groups = static_cast<std::size_t>(config.groups), size = scores.size() / groups;
  Values best;
  for (std::size_t group = 0; group < groups; ++group) {
    Values own(scores.begin() + static_cast<std::ptrdiff_t>(group * size),
               scores.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    std::ranges::sort(own, std::greater<>());
    best.push_back(std::accumulate(own.begin(), own.begin() + config.group_best, 0.0));
  }
  const auto order = by_score(best);
  std::vector<bool> out(scores.size(), false);
  for (std::int64_t i = 0; i < config.chosen_groups; ++i) {
    const std::size_t group = order[static_cast<std::size_t>(i)];
    for (std::size_t expert = group * size; expert < (group + 1) * size; ++expert) out[expert] = true;
  }
  return out;
}

Taken reference(const Values& products, const Values& correction, const MoeConfig& config) {
  Values scores;
  for (const double value : products) scores.push_back(1 / (1 + std::exp(-value)));
  if (config.scoring == Scoring::kSoftmax) scores = softmax(products);
  Values ranked = scores;
  for (std::size_t i = 0; i < correction.size(); ++i) ranked[i] += correction[i];
  const auto is_in = is_in_best_group(ranked, config);
  Taken out;
  double sum = 0;
  for (const std::size_t expert : by_score(ranked)) {
    if (!is_in[expert] || std::ssize(out.experts) == config.experts_per_token) continue;
    out.experts.push_back(expert);
    out.shares.push_back(scores[expert]);
    sum += scores[expert];
  }
  for (double& share : out.shares) share *= config.scale / (config.is_normalised ? sum : 1.0);
  return out;
}

at::Tensor random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

Values values_of(const at::Tensor& x) {
  const at::Tensor own = x.to(at::kDouble).contiguous();
  return {own.const_data_ptr<double>(), own.const_data_ptr<double>() + own.numel()};
}

// The same in plain memory.
void check_route_token(const at::Tensor& products, const at::Tensor& correction, const MoeConfig& config,
                       const Taken& wanted) {
  const at::Tensor scores = products.clone(), ranked = at::empty_like(products);
  std::vector<std::int64_t> chosen(wanted.experts.size());
  std::vector<float> shares(wanted.experts.size());
  route_token({scores.mutable_data_ptr<float>(), ranked.mutable_data_ptr<float>(),
               correction.defined() ? correction.const_data_ptr<float>() : nullptr},
              config, chosen.data(), shares.data());
  for (std::size_t i = 0; i < wanted.experts.size(); ++i) {
    CHECK(chosen[i] == static_cast<std::int64_t>(wanted.experts[i]));
    CHECK(shares[i] == Approx(wanted.shares[i]).epsilon(1e-5));
  }
}

TEST_CASE("a token takes the best experts of the best groups, with their shares", "[routing]") {
  const at::Tensor products = random({40, 12}, 1) * 2, correction = random({12}, 2);
  for (const Scoring scoring : {Scoring::kSoftmax, Scoring::kSigmoid}) {
    for (const bool is_corrected : {false, true}) {
      for (const std::int64_t groups : {1, 3}) {
        const MoeConfig config{.num_experts = 12,
                               .experts_per_token = 4,
                               .scoring = scoring,
                               .groups = groups,
                               .chosen_groups = groups == 1 ? 1 : 2,
                               .group_best = is_corrected ? 2 : 1,
                               .is_normalised = groups == 1,
                               .scale = 2.5};
        const Routes routes = route(products, is_corrected ? correction : at::Tensor(), config);
        for (std::int64_t token = 0; token < products.size(0); ++token) {
          const Taken wanted =
              reference(values_of(products[token]), is_corrected ? values_of(correction) : Values(), config);
          for (std::size_t i = 0; i < wanted.experts.size(); ++i) {
            const auto at = static_cast<std::int64_t>(i);
            CHECK(routes.chosen[token][at].item<std::int64_t>() == static_cast<std::int64_t>(wanted.experts[i]));
            CHECK(routes.shares[token][at].item<double>() == Approx(wanted.shares[i]).epsilon(1e-5));
          }
          check_route_token(products[token], is_corrected ? correction : at::Tensor(), config, wanted);
        }
      }
    }
  }
}

TEST_CASE("the sparse mixer's shares are among those that are nearly as good", "[routing]") {
  const MoeConfig config{.num_experts = 5, .experts_per_token = 2, .scoring = Scoring::kSparseMixer, .jitter = 0.05};
  // Beside 2: 1.9, within a tenth; of the others 1.9 is the best, and 1.75 within a tenth of it.
  const Routes near = route(at::tensor({1.75f, 2.0f, 0.5f, 1.9f, -3.0f}).unsqueeze(0), {}, config);
  CHECK(values_of(near.chosen) == Values{1, 3});
  const double first = 1 / (1 + std::exp(-0.1)), second = 1 / (1 + std::exp(-0.15));
  CHECK(near.shares[0][0].item<double>() == Approx(first).epsilon(1e-5));
  CHECK(near.shares[0][1].item<double>() == Approx(second).epsilon(1e-5));
  const Routes apart = route(at::tensor({1.0f, 2.0f, 0.5f, 1.5f, -3.0f}).unsqueeze(0), {}, config);
  CHECK(values_of(apart.chosen) == Values{1, 3});
  CHECK(values_of(apart.shares) == Values{1, 1});
}

}  // namespace
}  // namespace halfbyte::models
