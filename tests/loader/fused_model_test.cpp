// Models that run in kernels alone: what they give is what modules give, bit for bit; and what is for modules alone.
#include <halfbyte/fused_model.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "models/architectures/model_config.h"
#include "tests/catch.h"
#include "tests/loader/files/scratch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

// Of attention by a latent vector, recurrent states, or layers that are given more; of experts, gates and logits
// without a form in kernels. All others must have one.
const std::set<std::string> kOfModules = {"deepseek-v2-lite", "deepseek-v3", "gemma2",     "gemma4", "gemma4-moe",
                                          "gemma4-ple",       "gpt-oss",     "lfm2",       "llama4", "phimoe",
                                          "qwen3-next",       "qwen3.5",     "qwen3.5-moe"};

GenerateOptions greedy(std::int64_t tokens) {
  return {.max_gen_len = tokens, .temperature = 0, .logprobs = true, .ignore_eos = true};
}

void check_alike(const std::vector<Generation>& found, const std::vector<Generation>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].tokens == wanted[i].tokens);
    CHECK((found[i].logprobs == wanted[i].logprobs));
    CHECK(found[i].finish_reason == wanted[i].finish_reason);
  }
}

// Prompts that are read as few rows and as many, together and alone.
void check_alike(const std::filesystem::path& checkpoint, const LoadOptions& options) {
  INFO(checkpoint.filename() << " under " << options.dtype.name());
  const FusedLoad fused = load_fused(checkpoint, options);
  INFO(fused.why_not);
  REQUIRE(fused.model);
  const Model modules = load_low_bit(checkpoint, options);
  TokenIds many;
  for (std::int64_t i = 0; i < 70; ++i) many.push_back(3 + i * 7 % 50);
  const std::vector<std::vector<TokenIds>> all = {{{5, 9, 11}, many}, {many}, {{7}}};
  for (const std::vector<TokenIds>& prompts : all)
    check_alike(fused.model->generate(prompts, greedy(6)), modules.generate(prompts, greedy(6)));
  const GenerateOptions drawn{
      .max_gen_len = 8, .temperature = 0.9, .top_p = 0.95, .logprobs = true, .echo = true, .seed = 11};
  check_alike(fused.model->generate({many}, drawn), modules.generate({many}, drawn));
}

TEST_CASE("fused models: every family whose layers have a form gives what its modules give", "[fused]") {
  std::set<std::string> refused;
  for (const auto& entry : std::filesystem::directory_iterator(tests::data("families"))) {
    const std::string family = entry.path().filename();
    if (kOfModules.contains(family)) {
      const FusedLoad load = load_fused(entry.path());
      CHECK(!load.model);
      CHECK(!load.why_not.empty());
      refused.insert(family);
    } else {
      check_alike(entry.path(), {});
    }
  }
  CHECK(refused == kOfModules);
}

TEST_CASE("fused models: every policy with a float32 stream, every arithmetic, and keys in 8 bits", "[fused]") {
  const LoadOptions cases[] = {{.dtype = DtypePolicy::float32()},
                               {.dtype = DtypePolicy::amp(Dtype::kFloat16)},
                               {.compute = ComputeMode::kFloat},
                               {.compute = ComputeMode::kInt8},
                               {.key_values = KeyValues::kInt8},
                               {.keep_float32 = {"*.down_proj"}},
                               {.overrides = {{"model.layers.0.mlp", DtypePolicy::float32()}}}};
  const tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "sym_int4"});
  for (const LoadOptions& options : cases) {
    check_alike(scratch / "packed", options);
    check_alike(tests::data("families") / "qwen2", {.dtype = options.dtype, .key_values = options.key_values});
  }
}

TEST_CASE("fused models: every scheme, the embedding and the head packed too", "[fused]") {
  const tests::Scratch scratch;
  for (const char* scheme : {"sym_int4", "asym_int4", "nf4", "fp4", "hb4", "sym_int8"}) {
    INFO(scheme);
    convert::quantize(tests::data("tiny-llama"), scratch / scheme, {.scheme = scheme, .halfbyte_only = true});
    check_alike(scratch / scheme, {});
  }
  convert::quantize(tests::data("tiny-llama"), scratch / "all",
                    {.scheme = "sym_int4", .halfbyte_only = true, .embedding = "sym_int8", .head = "sym_int8"});
  check_alike(scratch / "all", {});
  for (const char* family : {"mixtral", "granitemoe", "minimax-m2", "glm4-moe", "ernie4.5"}) {
    convert::quantize(tests::data("families") / family, scratch / family,
                      {.scheme = "sym_int4", .halfbyte_only = true});
    check_alike(scratch / family, {});
  }
}

TEST_CASE("fused models: checkpoints of other tools", "[fused]") {
  std::int64_t count = 0;
  const auto peers = tests::shared("fixtures/peers");
  if (!peers) HALFBYTE_SKIP("fixtures/peers is not here");
  for (const char* name : {"awq-g64", "bnb-nf4-dq", "ct-g64", "gptq-asym-g64", "gptq-sym-g64", "ipexllm-sym_int4"}) {
    check_alike(*peers / name, {});
    ++count;
  }
  CHECK(count == 6);
}

TEST_CASE("fused models: guesses and a prompt cache change no text", "[fused]") {
  const auto model = load_fused(tests::data("tiny-llama")).model;
  REQUIRE(model);
  const TokenIds prompt = {1, 300, 301, 302, 300, 301, 302, 300, 301};
  const auto wanted = model->generate({prompt}, greedy(40));
  GenerateOptions guessing = greedy(40);
  guessing.lookup = true;
  check_alike(model->generate({prompt}, guessing), wanted);
  PromptCache cache;
  GenerateOptions cached = greedy(40);
  cached.cache = &cache;
  check_alike(model->generate({prompt}, cached), wanted);
  CHECK(cache.tokens() == static_cast<std::int64_t>(prompt.size()) + 39);
  const auto again = model->generate({prompt}, cached);
  CHECK(again[0].cached_tokens == static_cast<std::int64_t>(prompt.size()) - 1);
  CHECK(again[0].tokens == wanted[0].tokens);
  const auto other = load_fused(tests::data("tiny-llama")).model;
  CHECK(other->generate({prompt}, cached)[0].cached_tokens == 0);  // of another model
}

TEST_CASE("fused models: what options have them leave to modules", "[fused]") {
  const LoadOptions cases[] = {{.dtype = DtypePolicy::half()},
                               {.dtype = DtypePolicy::original()},
                               {.verify = Verification::kHashes},
                               {.overrides = {{"model.layers.0.mlp.down_proj", DtypePolicy::original()}}},
                               {.device = Device::parse("meta")}};
  for (const LoadOptions& options : cases) {
    const FusedLoad load = load_fused(tests::data("tiny-llama"), options);
    CHECK(!load.model);
    CHECK(!load.why_not.empty());
  }
  CHECK_THROWS_AS(load_fused("no-such-model"), Error);
  const auto model = load_fused(tests::data("tiny-llama")).model;
  const Model draft = load_low_bit(tests::data("tiny-llama"));
  GenerateOptions drafted = greedy(4);
  drafted.draft = &draft.module();
  CHECK_THROWS_WITH(model->generate({{1, 2}}, drafted), Catch::Contains("draft"));
  CHECK_THROWS_WITH(model->generate({{}}, greedy(4)), Catch::Contains("no tokens"));
  CHECK_THROWS_WITH(model->generate({{1 << 30}}, greedy(4)), Catch::Contains("vocabulary"));
}

TEST_CASE("fused models: what is not finite is told, and a stop is obeyed", "[fused]") {
  testing::Scratch scratch;
  auto tensors = testing::llama_tensors(true, Dtype::kFloat32);
  const auto norm = std::ranges::find(tensors, "model.norm.weight", &testing::TestTensor::name);
  REQUIRE(norm != tensors.end());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(norm->bytes.data(), &nan, sizeof nan);
  testing::write_checkpoint(scratch.path(), tensors, testing::llama_config());
  const auto broken = load_fused(scratch.path(), {.dtype = DtypePolicy::float32()});
  REQUIRE(broken.model);
  testing::check_error(ErrorCode::kCorrupt, {"model.norm.weight holds 1 of 32"}, [&] {
    broken.model->generate({{1, 2, 3}}, greedy(2));
  });
  testing::Scratch large;
  auto beyond = testing::llama_tensors(true, Dtype::kFloat32);
  for (testing::TestTensor& tensor : beyond) {  // each fits float16, what they give does not
    if (!tensor.name.ends_with("proj.weight")) continue;
    std::vector<float> values(tensor.bytes.size() / sizeof(float), 6e4F);
    tensor.bytes = testing::floats(values, Dtype::kFloat32);
  }
  testing::write_checkpoint(large.path(), beyond, testing::llama_config());
  const auto lost = load_fused(large.path(), {.dtype = DtypePolicy::amp(Dtype::kFloat16)});
  REQUIRE(lost.model);
  CHECK_THROWS_AS(lost.model->generate({{1, 2, 3}}, greedy(2)), NotFiniteError);
  const auto model = load_fused(tests::data("tiny-llama")).model;
  std::stop_source stop;
  GenerateOptions stopped = greedy(100);
  stopped.stop = stop.get_token();
  stopped.on_token = [&](std::size_t, std::int64_t) {
    stop.request_stop();
    return true;
  };
  const auto found = model->generate({{1, 2, 3}}, stopped);
  CHECK(found[0].finish_reason == FinishReason::kCancelled);
  CHECK(found[0].tokens.size() == 1);
}

TEST_CASE("fused models: the report is that of modules, tensor by tensor", "[fused]") {
  const tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "sym_int4"});
  for (const std::filesystem::path& path : {tests::data("tiny-llama"), scratch / "packed"}) {
    const LoadReport found = load_fused(path).model->report(), wanted = load_low_bit(path).report();
    REQUIRE(found.tensors.size() == wanted.tensors.size());
    for (std::size_t i = 0; i < found.tensors.size(); ++i) {
      const LoadedTensor &one = found.tensors[i], &other = wanted.tensors[i];
      INFO(other.name);
      CHECK(one.name == other.name);
      CHECK(one.loaded == other.loaded);
      CHECK(one.bytes == other.bytes);
      CHECK(one.placement == other.placement);
      CHECK(one.operand == other.operand);
      CHECK(one.note == other.note);
    }
    CHECK(found.compute == wanted.compute);
    CHECK(found.key_values == wanted.key_values);
    CHECK(found.identity == wanted.identity);
  }
}

}  // namespace
}  // namespace halfbyte
