// PromptCache: the same tokens as from scratch, whatever came before; and why a generation ends.
#include "tests/catch.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "models/architectures/model_config.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

Model load(const std::filesystem::path& path) { return load_low_bit(path, {.dtype = DtypePolicy::float32()}); }

const Model& tiny() {
  static const Model model = load(tests::data("tiny-llama"));
  return model;
}

TokenIds token_run(std::int64_t first, std::int64_t count) {
  TokenIds ids = {1};
  for (std::int64_t i = 1; i < count; ++i) ids.push_back(3 + (first + 37 * i) % 90);
  return ids;
}

// What a conversation asks: prompts that grow, that branch off, that are shorter, that have nothing in common.
void compare_with_scratch(const Model& model, std::int64_t longest) {
  PromptCache cache;
  TokenIds talk = token_run(5, 4);
  for (int turn = 0; static_cast<std::int64_t>(talk.size()) + 6 < longest; ++turn) {
    GenerateOptions options{.max_gen_len = 6, .temperature = 0, .ignore_eos = true};
    const Generation alone = model.generate({talk}, options)[0];
    options.cache = &cache;
    const Generation kept = model.generate({talk}, options)[0];
    INFO("turn " << turn << " of " << talk.size() << " tokens, " << kept.cached_tokens << " kept");
    CHECK(kept.tokens == alone.tokens);
    CHECK(alone.cached_tokens == 0);
    if (turn > 0) CHECK(kept.cached_tokens < static_cast<std::int64_t>(talk.size()));
    CHECK(cache.tokens() == static_cast<std::int64_t>(talk.size()) + 5);  // the last one was not read
    if (turn == 2) talk.resize(3);
    if (turn == 4) talk = token_run(11, 9);
    const TokenIds more = token_run(turn, 5);
    if (turn != 2 && turn != 4) talk.insert(talk.end(), alone.tokens.begin(), alone.tokens.end());
    talk.insert(talk.end(), more.begin(), more.end());
  }
}

// A model whose rope scaling changes once a sequence is longer than `limit` tokens.
std::filesystem::path outgrowing_model(const tests::Scratch& scratch, const std::string& type, int limit = 16) {
  const auto source = tests::data("families") / "phi3";
  std::ifstream in(source / "config.json");
  auto config = nlohmann::json::parse(in);
  config["original_max_position_embeddings"] = limit;
  config["max_position_embeddings"] = 4 * limit;
  auto& rope = config["rope_parameters"];
  rope["rope_type"] = type;
  rope["factor"] = 4.0;
  rope["original_max_position_embeddings"] = limit;
  for (int pair = 0; pair < 16 && type == "longrope"; ++pair) {
    rope["short_factor"].push_back(1.0);
    rope["long_factor"].push_back(1.0 + pair);
  }
  const auto path = scratch / type;
  std::filesystem::create_directory(path);
  std::ofstream(path / "config.json") << config;
  std::filesystem::copy(source / "model.safetensors", path / "model.safetensors");
  return path;
}

TEST_CASE("a kept cache gives the tokens of a call from scratch", "[cache]") { compare_with_scratch(tiny(), 200); }

TEST_CASE("a kept cache serves every family", "[cache]") {
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tests::data("families"))) {
    if (!std::filesystem::exists(entry.path() / "model.safetensors")) continue;
    INFO(entry.path());
    const Model model = load(entry.path());
    compare_with_scratch(model, std::min<std::int64_t>(64, model.module().config().max_position_embeddings));
    ++families;
  }
  CHECK(families >= 11);
}

TEST_CASE("a kept cache knows when a sequence outgrows its rope scaling", "[cache]") {
  const tests::Scratch scratch;
  compare_with_scratch(load(outgrowing_model(scratch, "longrope")), 48);
}

TEST_CASE("what was read of a long prompt before it was stopped does not begin a short one", "[cache]") {
  const tests::Scratch scratch;
  const Model model = load(outgrowing_model(scratch, "longrope", 600));
  PromptCache cache;
  std::stop_source stop;
  GenerateOptions options{.max_gen_len = 4, .temperature = 0, .ignore_eos = true, .stop = stop.get_token()};
  options.cache = &cache;
  options.on_prompt = [&](std::int64_t done, std::int64_t) {
    if (done > 520) stop.request_stop();  // in the second pass
  };
  CHECK(model.generate({token_run(5, 700)}, options)[0].finish_reason == FinishReason::kCancelled);
  CHECK(cache.tokens() == 512);
  const Generation out = model.generate({token_run(5, 560)}, {.max_gen_len = 4, .temperature = 0, .cache = &cache})[0];
  CHECK(out.cached_tokens == 0);
  CHECK(out.tokens == model.generate({token_run(5, 560)}, {.max_gen_len = 4, .temperature = 0})[0].tokens);
}

TEST_CASE("a turn reads only what is new", "[cache]") {
  PromptCache cache;
  const GenerateOptions options{.max_gen_len = 4, .temperature = 0, .ignore_eos = true, .cache = &cache};
  TokenIds talk = token_run(5, 30);
  const TokenIds answer = tiny().generate({talk}, options)[0].tokens;
  talk.insert(talk.end(), answer.begin(), answer.end());
  talk.push_back(300);
  CHECK(tiny().generate({talk}, options)[0].cached_tokens == 33);
  CHECK(tiny().generate({talk}, options)[0].cached_tokens == 34);  // one is read again, for its logits
  cache.clear();
  CHECK(cache.tokens() == 0);
  CHECK(tiny().generate({talk}, options)[0].cached_tokens == 0);
}

TEST_CASE("a cache of another model is not used, nor one beside other prompts or under echoed log-probabilities",
          "[cache]") {
  PromptCache cache;
  GenerateOptions options{.max_gen_len = 4, .temperature = 0, .cache = &cache};
  const TokenIds talk = token_run(5, 20);
  {
    const Model other = load(tests::data("families") / "qwen2");
    other.generate({talk}, options);
  }
  const Generation out = tiny().generate({talk}, options)[0];
  CHECK(out.cached_tokens == 0);
  CHECK(out.tokens == tiny().generate({talk}, {.max_gen_len = 4, .temperature = 0})[0].tokens);
  CHECK_THROWS_AS(tiny().generate({talk, talk}, options), Error);
  options.logprobs = options.echo = true;
  const Generation echoed = tiny().generate({talk}, options)[0];
  CHECK(echoed.cached_tokens == 0);
  CHECK(echoed.logprobs.size() == echoed.tokens.size());
}

TEST_CASE("a generation that was stopped leaves a cache that goes on rightly", "[cache]") {
  PromptCache cache;
  std::stop_source stop;
  GenerateOptions options{.max_gen_len = 20, .temperature = 0, .ignore_eos = true, .cache = &cache};
  options.stop = stop.get_token();
  int seen = 0;
  options.on_token = [&](std::size_t, std::int64_t) {
    if (++seen == 3) stop.request_stop();
    return true;
  };
  const TokenIds talk = token_run(5, 20);
  const Generation cut = tiny().generate({talk}, options)[0];
  CHECK(cut.finish_reason == FinishReason::kCancelled);
  CHECK(cut.tokens.size() == 3);
  const Generation none = tiny().generate({token_run(9, 20)}, options)[0];
  CHECK(none.finish_reason == FinishReason::kCancelled);
  CHECK(none.tokens.empty());
  const GenerateOptions plain{.max_gen_len = 6, .temperature = 0, .ignore_eos = true};
  GenerateOptions kept = plain;
  kept.cache = &cache;
  CHECK(tiny().generate({talk}, kept)[0].tokens == tiny().generate({talk}, plain)[0].tokens);
}

TEST_CASE("an error in a callback leaves no wrong cache", "[cache]") {
  PromptCache cache;
  GenerateOptions options{.max_gen_len = 20, .temperature = 0, .ignore_eos = true, .cache = &cache};
  options.on_token = [](std::size_t, std::int64_t) -> bool { throw std::runtime_error("enough"); };
  const TokenIds talk = token_run(5, 20);
  CHECK_THROWS_AS(tiny().generate({talk}, options), std::runtime_error);
  options.on_token = {};
  const Generation out = tiny().generate({talk}, options)[0];
  CHECK(out.cached_tokens == 0);
  CHECK(out.tokens == tiny().generate({talk}, {.max_gen_len = 20, .temperature = 0, .ignore_eos = true})[0].tokens);
}

TEST_CASE("a generation says why it ended", "[generate]") {
  const auto reason = [](std::int64_t prompt, GenerateOptions options) {
    options.temperature = 0;
    options.ignore_eos = true;
    return tiny().generate({token_run(5, prompt)}, options)[0].finish_reason;
  };
  CHECK(reason(20, {.max_gen_len = 5}) == FinishReason::kLength);
  CHECK(reason(20, {.max_gen_len = 0}) == FinishReason::kLength);
  CHECK(reason(250, {.max_gen_len = 20}) == FinishReason::kContext);
  CHECK(reason(250, {.max_gen_len = 6}) == FinishReason::kLength);
  CHECK(reason(256, {.max_gen_len = 6}) == FinishReason::kContext);
  const std::int64_t first =
      tiny().generate({token_run(5, 20)}, {.max_gen_len = 1, .temperature = 0, .ignore_eos = true})[0].tokens[0];
  CHECK(reason(20, {.max_gen_len = 5, .stop_tokens = {first}}) == FinishReason::kStop);
  CHECK(reason(20, {.max_gen_len = 5, .on_token = [](std::size_t, std::int64_t) { return false; }}) ==
        FinishReason::kCancelled);
}

}  // namespace
}  // namespace halfbyte
