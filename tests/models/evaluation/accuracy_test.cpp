// What evaluate() says against what perplexity() and plain arithmetic say, and its statistics against numbers by hand.
#include "tests/catch.h"

#include <cmath>

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>

#include <halfbyte/accuracy.h>
#include <halfbyte/convert.h>
#include <halfbyte/error.h>
#include <halfbyte/load_low_bit.h>

#include "models/evaluation/statistics.h"
#include "models/evaluation/token_scores.h"
#include "tests/loader/files/scratch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

LoadOptions in_float32() {
  LoadOptions options;
  options.dtype = DtypePolicy::float32();
  options.compute = ComputeMode::kFloat;
  return options;
}

TokenIds some_text(std::int64_t tokens) {
  TokenIds text;
  for (std::int64_t i = 0; i < tokens; ++i) text.push_back(3 + i * 7919 % 1000);
  return text;
}

TEST_CASE("evaluate() measures what perplexity() does, several windows at once", "[evaluate]") {
  const testing::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed");
  const Model original = load_low_bit(tests::data("tiny-llama"), in_float32());
  const Model packed = load_low_bit(scratch / "packed", in_float32());
  const TokenIds text = some_text(15 * 40 + 3);
  for (const WindowKind kind : {WindowKind::kPrefixed, WindowKind::kLlamaCpp}) {
    const PerplexityOptions options{.context = 16, .kind = kind};
    const Accuracy found = evaluate(packed.module(), text, {1}, options, &original.module());
    const PerplexityResult wanted = perplexity(packed.module(), text, {1}, options, &original.module());
    REQUIRE(found.loss);
    CHECK(found.windows == wanted.windows);
    CHECK(found.tokens == wanted.tokens);
    CHECK(found.perplexity.value == Approx(wanted.perplexity).epsilon(1e-6));
    CHECK(found.loss->original_perplexity.value == Approx(*wanted.reference_perplexity).epsilon(1e-6));
    CHECK(found.loss->kl_mean.value == Approx(wanted.divergence->kl_mean).epsilon(1e-4));
    CHECK(found.loss->kl_p99 == Approx(wanted.divergence->kl_p99).epsilon(1e-3));
    CHECK(found.loss->top1_agreement.value == Approx(wanted.divergence->top1_agreement));
    CHECK(found.loss->perplexity_ratio.value ==
          Approx(found.perplexity.value / found.loss->original_perplexity.value).epsilon(1e-9));
    CHECK(found.loss->kl_mean.low < found.loss->kl_mean.value);
    CHECK(found.scores.back().window == found.windows - 1);
    CHECK(found.scores.back().position == 15);
  }
}

TEST_CASE("a model has lost nothing against itself", "[evaluate]") {
  const Model model = load_low_bit(tests::data("tiny-llama"), in_float32());
  const Accuracy found = evaluate(model.module(), some_text(700), {1}, {.context = 64, .windows = 3}, &model.module());
  CHECK(found.windows == 3);
  CHECK(found.tokens == 96);
  CHECK(std::abs(found.loss->kl_mean.value) < 1e-7);
  CHECK(std::abs(found.loss->kl_largest) < 1e-6);
  CHECK(found.loss->top1_agreement.value == 1);
  CHECK(found.loss->top5_agreement.value == 1);
  CHECK(found.loss->perplexity_ratio.value == Approx(1).epsilon(1e-9));
}

TEST_CASE("evaluate() stops, and keeps the windows that were finished", "[evaluate]") {
  const Model model = load_low_bit(tests::data("tiny-llama"), in_float32());
  std::stop_source stop;
  PerplexityOptions options{.context = 256, .stop = stop.get_token()};
  std::int64_t largest = 0;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    CHECK(done <= total);
    CHECK(done >= largest);
    largest = done;
    if (done > total / 2) stop.request_stop();
  };
  const Accuracy found = evaluate(model.module(), some_text(255 * 20), {1}, options);
  CHECK(found.was_stopped);
  CHECK(found.windows == 8);
  CHECK_FALSE(found.loss);
  options.progress = {};
  CHECK_THROWS_AS(evaluate(model.module(), some_text(255 * 20), {1}, options), Error);
}

TEST_CASE("scores of tokens are those of log-softmax in float64", "[evaluate]") {
  const at::Tensor original =
      at::tensor({2.0f, 1.0f, 0.5f, -1.0f, -30.0f, 88.0f, 87.0f, 80.0f, 1.0f, 0.0f}).view({2, 5});
  const at::Tensor logits = at::tensor({1.0f, 2.0f, 0.5f, -1.5f, -20.0f, 87.0f, 87.5f, 81.0f, 1.5f, 0.0f}).view({2, 5});
  const auto scores = models::score_tokens(logits, original, at::tensor({std::int64_t{2}, std::int64_t{4}}));
  const at::Tensor p = original.log_softmax(-1, at::kDouble), q = logits.log_softmax(-1, at::kDouble);
  const at::Tensor divergence = (p.exp() * (p - q)).sum(-1);
  REQUIRE(scores.size() == 2);
  for (std::int64_t row = 0; row < 2; ++row) {
    const TokenScore& score = scores[static_cast<std::size_t>(row)];
    const std::int64_t target = row == 0 ? 2 : 4;
    CHECK(score.token == target);
    CHECK(score.divergence == Approx(divergence[row].item<double>()).epsilon(1e-6));
    CHECK(score.log_probability == Approx(q[row][target].item<double>()).epsilon(1e-6));
    CHECK(score.original_log_probability == Approx(p[row][target].item<double>()).epsilon(1e-6));
    CHECK(score.original_choice == 0);
    CHECK(score.choice == 1);
    CHECK(score.shared_top == 5);  // all that there are
  }
}

TEST_CASE("a mean's interval is Student's over windows", "[evaluate]") {
  std::vector<TokenScore> scores;
  for (const auto& [window, value] : {std::pair{0, 1.0}, {0, 3.0}, {1, 4.0}, {1, 4.0}, {2, 3.0}, {2, 9.0}}) {
    scores.push_back({.window = window, .divergence = value});
  }
  const Interval mean = models::mean_over_windows(scores, [](const TokenScore& s) { return s.divergence; });
  CHECK(mean.value == Approx(4));
  CHECK(mean.high - mean.value == Approx(4.303 * 2 / std::sqrt(3.0)));
  CHECK(mean.value - mean.low == Approx(mean.high - mean.value));
  const std::span<const TokenScore> one = std::span(scores).first(2);
  CHECK(models::mean_over_windows(one, [](const TokenScore& s) { return s.divergence; }).low == 2);
  // Source: any table of Student's distribution.
  CHECK(models::student95(1) == Approx(12.706));
  CHECK(models::student95(10) == Approx(2.228).epsilon(1e-3));
  CHECK(models::student95(30) == Approx(2.042).epsilon(1e-3));
  CHECK(models::student95(1'000'000) == Approx(1.960).epsilon(1e-3));
  std::vector<double> values = {5, 1, 4, 2, 3};
  CHECK(models::quantile(values, 0.5) == 3);
  CHECK(models::quantile(values, 0.999) == 5);
  CHECK(models::quantile(values, 0) == 1);
}

}  // namespace
}  // namespace halfbyte
