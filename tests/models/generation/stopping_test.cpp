// Stopping generate() and perplexity() in the middle of a pass, and what they say of how far they are.
#include "tests/catch.h"

#include <algorithm>

#include <halfbyte/causal_lm.h>
#include <halfbyte/evaluate.h>
#include <halfbyte/load_low_bit.h>

#include "models/architectures/model_config.h"
#include "models/modules/between_looks.h"
#include "models/sessions/pass_watch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

const Model& tiny() {
  static const Model model = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::float32()});
  return model;
}

TEST_CASE("passes cut up between looks at the watch give what whole ones give", "[generate]") {
  const c10::InferenceMode guard;
  const at::Tensor tokens = at::arange(230, at::kLong).mul(37).remainder(1024).unsqueeze(0);
  for (const char* policy : {"amp:bfloat16", "float32", "bfloat16", "half", "original"}) {
    const Model model = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::parse(policy)});
    const at::Tensor whole = model.module().forward(tokens);
    std::int64_t layers = 0;
    const models::PassWatch watch(
        {}, [&](std::int64_t done, std::int64_t) { layers = done; }, /*products=*/1);
    CHECK(models::rows_between_looks(230, 100) == 64);
    INFO(policy);
    CHECK((model.module().forward(tokens) - whole).abs().max().item<double>() < 1e-4);
    CHECK(layers == std::ssize(model.config().layers));
  }
}

TEST_CASE("rows between two looks are nearly equal and bounded by the work", "[generate]") {
  constexpr std::int64_t kGateAndUp = 2048 * 11264;  // of llama-1.1b
  CHECK(models::rows_between_looks(512, kGateAndUp) == 256);
  CHECK(models::rows_between_looks(1, kGateAndUp) == 1);
  CHECK(models::rows_between_looks(512, 2048 * 2048) == 512);
  CHECK(models::rows_between_looks(512, 0) == 512);
  CHECK(models::rows_between_looks(512, std::int64_t{8192} * 57344) == 64);
}

TEST_CASE("a stop in the middle of a prompt is heeded in the layer after it", "[generate]") {
  const TokenIds prompt(200, 300);
  for (const std::int64_t stopped_at : {1, 2, 3}) {
    std::stop_source stop;
    std::int64_t calls = 0, last = 0;
    PromptCache cache;
    GenerateOptions options{.max_gen_len = 8, .temperature = 0, .cache = &cache};
    options.stop = stop.get_token();
    options.on_prompt = [&](std::int64_t done, std::int64_t total) {
      CHECK(done > last);
      CHECK(total == 200);
      last = done;
      if (++calls == stopped_at) stop.request_stop();
    };
    options.on_token = [&](std::size_t, std::int64_t) {
      const bool is_token_after_the_stop = true;
      CHECK_FALSE(is_token_after_the_stop);
      return true;
    };
    const auto out = tiny().generate({prompt}, options);
    CHECK(calls == stopped_at);
    CHECK(out[0].finish_reason == FinishReason::kCancelled);
    CHECK(out[0].tokens.empty());
    CHECK(cache.tokens() == 0);
    const auto again = tiny().generate({prompt}, {.max_gen_len = 8, .temperature = 0, .cache = &cache});
    CHECK(again[0].tokens == tiny().generate({prompt}, {.max_gen_len = 8, .temperature = 0})[0].tokens);
  }
}

TEST_CASE("a prompt's progress goes over all prompts of a batch, and no further", "[generate]") {
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  GenerateOptions options{.max_gen_len = 3, .temperature = 0};
  options.on_prompt = [&](std::int64_t done, std::int64_t total) { seen.emplace_back(done, total); };
  tiny().generate({TokenIds(30, 300), TokenIds(10, 300)}, options);
  REQUIRE_FALSE(seen.empty());
  CHECK(std::ranges::is_sorted(seen));
  CHECK(seen.back() == std::pair<std::int64_t, std::int64_t>(40, 40));
}

TEST_CASE("what a callback throws is the caller's, whatever its code", "[generate]") {
  std::stop_source stop;
  GenerateOptions options{.max_gen_len = 3};
  options.stop = stop.get_token();
  options.on_token = [&](std::size_t, std::int64_t) -> bool {
    stop.request_stop();
    throw Error(ErrorCode::kInterrupted, "mine");
  };
  CHECK_THROWS_WITH(tiny().generate({{1, 300}}, options), "mine");
}

TEST_CASE("a caller's end of text keeps its last token and is a stop", "[generate]") {
  GenerateOptions options{.max_gen_len = 9, .temperature = 0};
  const TokenIds all = tiny().generate({{1, 300, 301}}, options)[0].tokens;
  int calls = 0;
  options.is_end = [&](std::size_t, std::int64_t) { return ++calls == 4; };
  const auto out = tiny().generate({{1, 300, 301}}, options);
  CHECK(out[0].tokens == TokenIds(all.begin(), all.begin() + 4));
  CHECK(out[0].finish_reason == FinishReason::kStop);
}

TEST_CASE("a stopped perplexity is that of the windows finished", "[perplexity]") {
  TokenIds text;
  for (std::int64_t i = 0; i < 400; ++i) text.push_back(300 + i * 7 % 400);
  const PerplexityOptions two{.context = 64, .windows = 2};
  const models::CausalLM* const references[] = {nullptr, &tiny().module()};
  for (const models::CausalLM* reference : references) {
    const PerplexityResult wanted = perplexity(tiny().module(), text, {1}, two, reference);
    CHECK_FALSE(wanted.was_stopped);
    std::stop_source stop;
    PerplexityOptions options{.context = 64};
    options.stop = stop.get_token();
    const std::int64_t all = 400 / 63 * 64 * (reference ? 2 : 1);
    options.progress = [&](std::int64_t done, std::int64_t total) {
      CHECK(total == all);
      if (done > 2 * 64 * (reference ? 2 : 1)) stop.request_stop();
    };
    const PerplexityResult result = perplexity(tiny().module(), text, {1}, options, reference);
    CHECK(result.was_stopped);
    CHECK(result.windows == 2);
    CHECK(result.tokens == wanted.tokens);
    CHECK(result.perplexity == Approx(wanted.perplexity).epsilon(1e-12));
    CHECK(result.divergence.has_value() == (reference != nullptr));
    CHECK_THROWS_WITH(perplexity(tiny().module(), text, {1}, options, reference), Catch::Contains("stopped"));
  }
}

}  // namespace
}  // namespace halfbyte
