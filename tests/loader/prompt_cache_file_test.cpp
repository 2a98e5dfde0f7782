// Prompt caches in files: what they give is what memory would have given, and when they are written.
#include <halfbyte/prompt_cache_file.h>

#include <algorithm>
#include <string>

#include <halfbyte/causal_lm.h>

#include "models/architectures/model_config.h"
#include "tests/catch.h"
#include "tests/loader/prompt_cache.h"
#include "tests/loader/quantized.h"

namespace halfbyte {
namespace {

using tests::greedy;
using tests::joined;
using tests::Kept;
using tests::run_with;
using tests::token_run;

const Model& tiny() {
  static const Model model = tests::load_float32(tests::data("tiny-llama"));
  return model;
}

void check_same(const Generation& one, const Generation& other) {
  CHECK(one.tokens == other.tokens);
  CHECK((one.logprobs == other.logprobs));
  CHECK(one.cached_tokens == other.cached_tokens);
}

// A prompt, one that goes on from it, one that parts from that before its end, the same again.
std::vector<TokenIds> prompts_of(std::int64_t context) {
  const TokenIds begin = token_run(5, context > 200 ? 150 : 30);
  const TokenIds one = joined(begin, token_run(7, 6)), other = joined(begin, token_run(9, 8));
  return {begin, one, other, other};
}

// The same calls with one cache in memory and with a file that each call reads and writes.
void compare_with_memory(const Model& model, const std::filesystem::path& path) {
  PromptCache memory;
  const std::vector<TokenIds> prompts = prompts_of(model.config().max_position_embeddings);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    INFO("call " << i);
    const Generation wanted = greedy(model, prompts[i], &memory);
    const Generation out = run_with(path, model, prompts[i], {.kept = Kept::kAll});
    check_same(out, wanted);
    CHECK((out.cached_tokens > 0) == (i == 1 || i == 3 || wanted.cached_tokens > 0));
  }
}

TEST_CASE("a prompt cache gives from a file what it gives from memory, bit for bit, in every family",
          "[prompt_cache]") {
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tests::data("families"))) {
    if (!std::filesystem::exists(entry.path() / "model.safetensors")) continue;
    INFO(entry.path());
    const tests::Scratch scratch;
    compare_with_memory(tests::load_float32(entry.path()), scratch / "cache");
    ++families;
  }
  CHECK(families >= 11);
}

TEST_CASE("a prompt cache gives from a file what it gives from memory under every policy", "[prompt_cache]") {
  for (const char* policy : {"amp:bfloat16", "half", "original"}) {
    for (const auto& path : {tests::data("tiny-llama"), tests::quantized_tiny_llama()}) {
      INFO(path << " under " << policy);
      const tests::Scratch scratch;
      compare_with_memory(load_low_bit(path, {.dtype = DtypePolicy::parse(policy)}), scratch / "cache");
    }
  }
}

TEST_CASE("a prompt cache in 8 bits gives from a file what it gives from memory, and serves no other kind",
          "[prompt_cache]") {
  for (const char* name : {"llama2", "gemma2", "gpt-oss", "qwen3-next"}) {
    INFO(name);
    const tests::Scratch scratch;
    const auto path = tests::data("families") / name;
    const Model coded = load_low_bit(path, {.key_values = KeyValues::kInt8});
    CHECK(coded.report().key_values == "int8");
    compare_with_memory(coded, scratch / "cache");
    CHECK_THROWS_WITH(PromptCacheFile(load_low_bit(path), scratch / "cache"),
                      Catch::Contains("keys and values kept otherwise"));
  }
}

TEST_CASE("8 bits are said of the models that have them", "[prompt_cache]") {
  const auto path = tests::data("families") / "deepseek-v3";
  const Model latent = load_low_bit(path, {.key_values = KeyValues::kInt8});
  CHECK(latent.report().key_values == latent.report().operand_dtype);
  const auto& notes = latent.report().notes;  // others depend on the CPU
  CHECK(std::ranges::any_of(notes, [](const std::string& note) {
    return note.find("keys and values stay as they are") != std::string::npos;
  }));
}

TEST_CASE("a file keeps the prompt, or all of a sequence, as it is asked", "[prompt_cache]") {
  const tests::Scratch scratch;
  const TokenIds prompt = token_run(5, 40);
  const Generation first = run_with(scratch / "prompt", tiny(), prompt);
  run_with(scratch / "all", tiny(), prompt, {.kept = Kept::kAll});
  const TokenIds more = joined(joined(prompt, first.tokens), {3, 4});
  CHECK(run_with(scratch / "prompt", tiny(), more).cached_tokens == 40);
  CHECK(run_with(scratch / "all", tiny(), more).cached_tokens == 43);  // the last one was not read
  PromptCacheFile file(tiny(), scratch / "prompt");
  CHECK(file.cache().tokens() == static_cast<std::int64_t>(more.size()));
}

TEST_CASE("a file is written where it lacks something, and only then", "[prompt_cache]") {
  const tests::Scratch scratch;
  const TokenIds prompt = token_run(5, 40);
  const auto writes = [&](const TokenIds& ids, const PromptCacheFileOptions& options = {}) {
    PromptCacheFile file(tiny(), scratch / "cache", options);
    if (!ids.empty()) greedy(tiny(), ids, &file.cache());
    const bool is_written = file.save();
    CHECK_FALSE(file.save());
    return is_written;
  };
  CHECK_FALSE(writes({}));
  CHECK_FALSE(std::filesystem::exists(scratch / "cache"));
  CHECK(writes(prompt));
  CHECK_FALSE(writes(prompt));
  CHECK_FALSE(writes(token_run(5, 20)));  // its beginning
  CHECK_FALSE(writes(joined(prompt, {3}), {.is_read_only = true}));
  CHECK(writes(joined(prompt, {3})));
  CHECK(writes(joined(prompt, {4})));
  CHECK_THROWS_WITH(PromptCacheFile(tiny(), scratch / "absent", {.is_read_only = true}),
                    Catch::Contains("absent: there is no such file"));
  CHECK_THROWS_WITH(PromptCacheFile(tiny(), scratch / "absent/cache"), Catch::Contains("no such folder"));
}

TEST_CASE("prompts that part where a recurrent model cannot go back are read again once", "[prompt_cache]") {
  const tests::Scratch scratch;
  const Model model = tests::load_float32(tests::data("families") / "qwen3-next");
  const TokenIds begin = token_run(5, 30);
  const auto cached = [&](std::int64_t tail) {
    return run_with(scratch / "cache", model, joined(begin, {tail, 4, 5, 6})).cached_tokens;
  };
  CHECK(cached(10) == 0);
  CHECK(cached(11) == 0);
  CHECK(cached(12) == 30);
  CHECK(cached(12) == 30);  // and now the prompt but its last token is known
  CHECK(cached(12) == 33);
  CHECK(cached(13) == 30);
}

TEST_CASE("a prompt that was broken off leaves what was read of it", "[prompt_cache]") {
  const tests::Scratch scratch;
  std::stop_source stop;
  stop.request_stop();
  {
    PromptCacheFile file(tiny(), scratch / "cache");
    GenerateOptions options{.temperature = 0, .stop = stop.get_token(), .cache = &file.cache()};
    CHECK(tiny().generate({token_run(5, 40)}, options)[0].finish_reason == FinishReason::kCancelled);
    CHECK_FALSE(file.save());
    options.stop = {};
    options.on_token = [](std::size_t, std::int64_t) -> bool { throw std::runtime_error("enough"); };
    CHECK_THROWS_AS(tiny().generate({token_run(5, 40)}, options), std::runtime_error);
    CHECK_FALSE(file.save());
  }
  CHECK_FALSE(std::filesystem::exists(scratch / "cache"));
}

}  // namespace
}  // namespace halfbyte
