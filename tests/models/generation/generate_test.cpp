// generate(): batches, sampling, log-probabilities, stopping, and what it refuses.
#include "tests/catch.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include <halfbyte/causal_lm.h>
#include <halfbyte/evaluate.h>
#include <halfbyte/load_low_bit.h>

#include "models/sessions/session.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

const Model& tiny() {
  static const Model model = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::float32()});
  return model;
}

std::string refusal(const std::vector<TokenIds>& prompts, const GenerateOptions& options) {
  try {
    tiny().generate(prompts, options);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

// A model whose rope scaling changes once a sequence is longer than 16 tokens.
std::filesystem::path outgrowing_model(const tests::Scratch& scratch) {
  const auto source = tests::data("families") / "phi3";
  std::ifstream in(source / "config.json");
  auto config = nlohmann::json::parse(in);
  config["original_max_position_embeddings"] = 16;
  auto& rope = config["rope_parameters"];
  rope["rope_type"] = "longrope";
  for (int pair = 0; pair < 16; ++pair) {
    rope["short_factor"].push_back(1.0);
    rope["long_factor"].push_back(1.0 + pair);
  }
  const auto path = scratch / "outgrowing";
  std::filesystem::create_directory(path);
  std::ofstream(path / "config.json") << config;
  std::filesystem::copy(source / "model.safetensors", path / "model.safetensors");
  return path;
}

TEST_CASE("a sequence that outgrows longrope's original context goes on as if read whole", "[generate]") {
  const tests::Scratch scratch;
  const Model model = load_low_bit(outgrowing_model(scratch), {.dtype = DtypePolicy::float32()});
  const std::vector<TokenIds> prompts = {{1, 7, 9, 30, 44, 51, 6, 80, 99, 12, 13, 14}, {1, 5, 9}, TokenIds(20, 33)};
  const auto together = model.generate(prompts, {.max_gen_len = 18, .temperature = 0, .ignore_eos = true});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    TokenIds tokens = prompts[i];
    const c10::InferenceMode guard;
    for (int step = 0; step < 18; ++step) {
      const at::Tensor logits = model.module().forward(at::tensor(tokens).unsqueeze(0));
      tokens.push_back(logits.select(1, logits.size(1) - 1).argmax(-1).item<std::int64_t>());
    }
    CHECK(together[i].tokens ==
          TokenIds(tokens.begin() + static_cast<std::ptrdiff_t>(prompts[i].size()), tokens.end()));
  }
}

TEST_CASE("a batch of prompts of different lengths gives what each gives alone", "[generate]") {
  const std::vector<TokenIds> prompts = {{1, 300, 301, 302, 303, 304, 305}, {1, 500}, {1, 600, 601, 602}};
  const GenerateOptions options{.max_gen_len = 20, .temperature = 0, .logprobs = true};
  const auto together = tiny().generate(prompts, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = tiny().generate({prompts[i]}, options);
    CHECK(together[i].tokens == alone[0].tokens);
    REQUIRE(together[i].logprobs.size() == together[i].tokens.size());
    for (std::size_t j = 0; j < alone[0].logprobs.size(); ++j) {
      CHECK(*together[i].logprobs[j] == Approx(*alone[0].logprobs[j]).margin(1e-4));
    }
  }
}

TEST_CASE("a prompt that fills the context does not disturb the others of its batch", "[generate]") {
  const TokenIds full(256, 300);
  const auto out = tiny().generate({full, {1, 500}}, {.max_gen_len = 8, .temperature = 0});
  CHECK(out[0].tokens.empty());
  CHECK(out[1].tokens == tiny().generate({{1, 500}}, {.max_gen_len = 8, .temperature = 0})[0].tokens);
}

TEST_CASE("sampling is the same for the same seed, whatever else is in the batch", "[generate]") {
  const GenerateOptions options{.max_gen_len = 24, .temperature = 1.0, .top_p = 0.95, .seed = 7};
  const auto first = tiny().generate({{1, 300, 301}}, options);
  CHECK(first[0].tokens == tiny().generate({{1, 300, 301}}, options)[0].tokens);
  CHECK(first[0].tokens == tiny().generate({{1, 300, 301}, {1, 9}}, options)[0].tokens);
  GenerateOptions other = options;
  other.seed = 8;
  CHECK(first[0].tokens != tiny().generate({{1, 300, 301}}, other)[0].tokens);
}

TEST_CASE("echoed log-probabilities are those of the whole text", "[generate]") {
  const TokenIds prompt = {1, 300, 301, 302, 303};
  const auto out = tiny().generate({prompt}, {.max_gen_len = 6, .temperature = 0, .logprobs = true, .echo = true});
  const TokenIds& tokens = out[0].tokens;
  REQUIRE(tokens.size() == prompt.size() + 6);
  REQUIRE(out[0].logprobs.size() == tokens.size());
  CHECK_FALSE(out[0].logprobs[0].has_value());
  const c10::InferenceMode guard;
  const at::Tensor logits = tiny().module().forward(at::tensor(tokens).unsqueeze(0)).squeeze(0);
  const at::Tensor expected = logits.log_softmax(-1);
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const double wanted = expected[static_cast<std::int64_t>(i) - 1][tokens[i]].item<double>();
    CHECK(*out[0].logprobs[i] == Approx(wanted).margin(1e-3));
  }
}

TEST_CASE("generation stops at stop tokens, at the limit, and when the caller says so", "[generate]") {
  const TokenIds prompt = {1, 300, 301};
  const GenerateOptions greedy{.max_gen_len = 12, .temperature = 0};
  const TokenIds all = tiny().generate({prompt}, greedy)[0].tokens;
  REQUIRE(all.size() == 12);
  GenerateOptions stopping = greedy;
  stopping.stop_tokens = {all[4]};
  const auto first = static_cast<std::size_t>(std::find(all.begin(), all.end(), all[4]) - all.begin());
  CHECK(tiny().generate({prompt}, stopping)[0].tokens ==
        TokenIds(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first)));
  TokenIds seen;
  GenerateOptions calling = greedy;
  calling.on_token = [&](std::size_t, std::int64_t token) {
    seen.push_back(token);
    return seen.size() < 3;
  };
  CHECK(tiny().generate({prompt}, calling)[0].tokens == TokenIds(all.begin(), all.begin() + 3));
  CHECK(seen == TokenIds(all.begin(), all.begin() + 3));
  CHECK(tiny().generate({prompt}, {.max_gen_len = 0, .temperature = 0})[0].tokens.empty());
}

TEST_CASE("a long prompt prefilled in chunks gives the logits of one pass", "[generate]") {
  // 200 tokens in passes of 64, 64 and 72 through one session.
  const c10::InferenceMode guard;
  const at::Tensor tokens = at::arange(200, at::kLong).mul(37).remainder(1024).unsqueeze(0);
  const at::Tensor whole = tiny().module().forward(tokens);
  models::Session session = tiny().module().make_session();
  std::vector<at::Tensor> parts;
  for (const auto& [begin, count] : std::vector<std::pair<int, int>>{{0, 64}, {64, 64}, {128, 72}}) {
    parts.push_back(tiny().module().head(tiny().module().hidden(tokens.narrow(1, begin, count), session)));
  }
  CHECK((at::cat(parts, 1) - whole).abs().max().item<double>() < 1e-4);
}

TEST_CASE("what generate cannot do it refuses in one line", "[generate]") {
  CHECK_THAT(refusal({{1}}, {.top_k = -1}), Catch::Contains("top_k"));
  CHECK_THAT(refusal({{1}}, {.min_p = 1.5}), Catch::Contains("min_p"));
  CHECK_THAT(refusal({{1}}, {.repetition_penalty = 0}), Catch::Contains("repetition_penalty"));
  CHECK_THAT(refusal({{1}}, {.repetition_penalty = std::nan("")}), Catch::Contains("repetition_penalty"));
  CHECK_THAT(refusal({{}}, {}), Catch::Contains("prompt 1 has no tokens"));
  CHECK_THAT(refusal({{1}, {1024}}, {}), Catch::Contains("prompt 2 has token id 1024"));
  CHECK_THAT(refusal({{-1}}, {}), Catch::Contains("token id -1"));
  CHECK_THAT(refusal({TokenIds(257, 1)}, {}), Catch::Contains("context is 256"));
  CHECK_THAT(refusal({{1}}, {.temperature = -1}), Catch::Contains("temperature"));
  CHECK_THAT(refusal({{1}}, {.temperature = std::nan("")}), Catch::Contains("temperature"));
  CHECK_THAT(refusal({{1}}, {.top_p = 0}), Catch::Contains("top_p"));
  CHECK_THAT(refusal({{1}}, {.max_gen_len = -1}), Catch::Contains("max_gen_len"));
  CHECK(tiny().generate({}, {}).empty());
}

TEST_CASE("streamed text is the text, never half a character", "[tokenizer]") {
  const auto tokenizer = models::load_tokenizer(tests::data("tiny-llama"));
  REQUIRE(tokenizer != nullptr);
  for (const std::string text :
       {"The ship was late.", "na\xC3\xAFve \xE2\x82\xAC 5 \xF0\x9F\x98\x80 end", "one line\nand another"}) {
    const TokenIds ids = tokenizer->encode(text);
    const std::string whole = tokenizer->decode(ids);
    CHECK(whole == text);
    models::StreamingDecoder stream(*tokenizer);
    std::string streamed;
    for (const std::int64_t id : ids) {
      const std::string piece = stream.push(id);
      CHECK(models::incomplete_utf8_tail(piece) == 0);
      CHECK(piece.find("\xEF\xBF\xBD") == std::string::npos);
      streamed += piece;
    }
    CHECK(streamed + stream.finish() == whole);
  }
  CHECK_THROWS_AS(tokenizer->decode({5000}), Error);
}

TEST_CASE("perplexity refuses what it cannot score", "[perplexity]") {
  const TokenIds text(600, 300);
  CHECK_THROWS_AS(perplexity(tiny().module(), TokenIds(10, 300), {1}, {.context = 64}), Error);
  CHECK_THROWS_AS(perplexity(tiny().module(), text, {1}, {.context = 512}), Error);
  CHECK_THROWS_AS(perplexity(tiny().module(), TokenIds(600, 1024), {1}, {.context = 64}), Error);
  const PerplexityResult result =
      perplexity(tiny().module(), text, {1}, {.context = 64, .windows = 3}, &tiny().module());
  CHECK(result.tokens == 3 * 32);
  CHECK(result.divergence->kl_mean == Approx(0).margin(1e-9));
  CHECK(result.divergence->top1_agreement == 1.0);
}

// Negative log-likelihood of the last `scored` tokens, by another way than perplexity's: generate's own logprobs.
double likelihood_of(const TokenIds& tokens, std::size_t scored) {
  GenerateOptions options{.max_gen_len = 0};
  options.logprobs = options.echo = true;
  const auto logprobs = tiny().generate({tokens}, options).at(0).logprobs;
  double sum = 0;
  for (std::size_t i = logprobs.size() - scored; i < logprobs.size(); ++i) sum -= logprobs[i].value();
  return sum;
}

TEST_CASE("llama.cpp's windows overwrite their first token and leave one more of it unscored", "[perplexity]") {
  TokenIds text;
  for (std::int64_t i = 0; i < 40; ++i) text.push_back(300 + i * 7 % 400);
  TokenIds first{1}, second{1};  // of the 41 tokens with the prefix, cut at 16 and 32
  first.insert(first.end(), text.begin(), text.begin() + 15);
  second.insert(second.end(), text.begin() + 16, text.begin() + 31);
  const PerplexityResult result =
      perplexity(tiny().module(), text, {1}, {.context = 16, .kind = WindowKind::kLlamaCpp});
  CHECK(result.tokens == 2 * 7);
  const double wanted = std::exp((likelihood_of(first, 7) + likelihood_of(second, 7)) / 14);
  CHECK(result.perplexity == Approx(wanted).epsilon(1e-3));
}

}  // namespace
}  // namespace halfbyte
