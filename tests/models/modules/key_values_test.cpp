// Keys and values in 8 bits: the module's codes are the kernels', sessions cut and fork them, and what they cost.
#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "models/modules/key_value_cache.h"
#include "models/modules/key_value_codes.h"
#include "models/sessions/session.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace halfbyte::models {
namespace {

at::Tensor random(at::IntArrayRef shape, std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(shape);
}

TEST_CASE("modules write the codes that kernels write, and read what they mean", "[session]") {
  for (const std::int64_t head_dim : {6, 64}) {
    const quant::Int8Blocks shape{3, head_dim};
    const at::Tensor rows = random({3, 9, head_dim}, 5), keys = at::zeros({shape.bytes()}, at::kByte);
    const at::Tensor values = keys.clone(), kernel_keys = keys.clone(), kernel_values = keys.clone();
    const auto data = [](const at::Tensor& block) { return static_cast<std::byte*>(block.mutable_data_ptr()); };
    CodedBlock{shape, CodeOrder::kKeys}.put(keys, rows, 50);
    CodedBlock{shape, CodeOrder::kValues}.put(values, rows, 50);
    for (std::int64_t head = 0; head < 3; ++head) {
      for (std::int64_t token = 0; token < 9; ++token) {
        const float* const x = rows.const_data_ptr<float>() + (head * 9 + token) * head_dim;
        shape.store_key(x, data(kernel_keys), head, 50 + token);
        shape.store_value(x, data(kernel_values), head, 50 + token);
      }
    }
    CHECK(at::equal(keys, kernel_keys));
    CHECK(at::equal(values, kernel_values));
    const at::Tensor step = rows.abs().amax(-1, true) / 127 * 1.01;
    for (const auto& [block, order] : {std::pair(keys, CodeOrder::kKeys), std::pair(values, CodeOrder::kValues)}) {
      const at::Tensor found = CodedBlock{shape, order}.values(block).narrow(1, 50, 9);
      CHECK(((found - rows).abs() <= step / 2).all().item<bool>());
    }
  }
}

TEST_CASE("a cache in 8 bits keeps what it was given through cuts, forks and blocks", "[session]") {
  KeyValueCache cache({2, 8, 8}, at::kFloat, at::kCPU, KeyValues::kInt8);
  const at::Tensor key = random({150, 2, 8}, 1), value = random({150, 2, 8}, 2);
  cache.store(0, key.narrow(0, 0, 100), value.narrow(0, 0, 100));
  const auto other = cache.fork();
  cache.cut(70);
  cache.store(70, key.narrow(0, 100, 50), value.narrow(0, 100, 50));
  const auto wanted = at::cat({key.narrow(0, 0, 70), key.narrow(0, 100, 50)}).transpose(0, 1);
  CHECK((cache.keys(0, 120) - wanted).abs().max().item<double>() < 0.02);
  const auto& kept = static_cast<const KeyValueCache&>(*other);
  CHECK((kept.values(60, 40) - value.narrow(0, 60, 40).transpose(0, 1)).abs().max().item<double>() < 0.02);
  CHECK(cache.keys(0, 120).scalar_type() == at::kFloat);
  CHECK(cache.bytes_of_token() == 2 * 2 * (8 + 2));
  CHECK(cache.bytes_for(120) == cache.bytes());
}

// Mean KL divergence of the second half of a text, which is read token by token where `one_by_one`.
double divergence(const CausalLM& model, const CausalLM& wanted, const TokenIds& text, bool one_by_one) {
  const c10::InferenceMode guard;
  const at::Tensor tokens = at::tensor(text).unsqueeze(0);
  const auto half = static_cast<std::int64_t>(text.size() / 2);
  const auto log_probabilities = [&](const CausalLM& of) {
    Session session = of.make_session();
    of.hidden(tokens.narrow(1, 0, half), session);
    const std::int64_t step = one_by_one ? 1 : half;
    std::vector<at::Tensor> out;
    for (std::int64_t at = half; at < 2 * half; at += step)
      out.push_back(of.head(of.hidden(tokens.narrow(1, at, step), session)));
    return at::cat(out, 1).log_softmax(-1).to(at::kDouble);
  };
  const at::Tensor p = log_probabilities(wanted), q = log_probabilities(model);
  return (p.exp() * (p - q)).sum(-1).mean().item<double>();
}

void check_divergence(const std::filesystem::path& path, const TokenIds& text, double bound) {
  const Model wanted = load_low_bit(path), coded = load_low_bit(path, {.key_values = KeyValues::kInt8});
  CHECK(coded.report().key_values == "int8");
  CHECK(wanted.report().key_values == "bfloat16");
  for (const bool one_by_one : {false, true}) {
    const double found = divergence(coded.module(), wanted.module(), text, one_by_one);
    INFO("one by one: " << one_by_one);
    CHECK(found > 0);
    CHECK(found < bound);
  }
}

TEST_CASE("8 bits for keys and values lose next to nothing, in passes of many tokens and of one", "[session]") {
  TokenIds text;
  for (std::int64_t i = 0; i < 128; ++i) text.push_back(i * 37 % 1024);  // which no model expects
  check_divergence(tests::data("tiny-llama"), text, 2e-4);
}

TEST_CASE("8 bits for keys and values lose next to nothing of a real text", "[session][accuracy]") {
  const auto model = tests::shared("models/small-llama"), text = tests::shared("text/wikitext-2-test.txt");
  if (!model || !text) {
    WARN("skipped: the shared models are not here");
    return;
  }
  std::string beginning(6000, ' ');
  std::ifstream(*text).read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  TokenIds tokens = load_tokenizer(*model)->encode(beginning);
  tokens.resize(256);
  check_divergence(*model, tokens, 1e-4);
}

TEST_CASE("every kind of attention runs over 8 bits as over 16, fused and module by module", "[session]") {
  for (const char* name : {"gemma2", "gemma3", "gpt-oss", "cohere2", "deepseek-v3", "phi3", "qwen3-next", "gemma4"}) {
    INFO(name);
    const auto path = tests::data("families") / name;
    for (const DtypePolicy& policy : {DtypePolicy::amp(), DtypePolicy::bfloat16()}) {
      const Model wanted = load_low_bit(path, {.dtype = policy});
      const Model coded = load_low_bit(path, {.dtype = policy, .key_values = KeyValues::kInt8});
      const c10::InferenceMode guard;
      const at::Tensor tokens = at::arange(40, at::kLong).mul(7).remainder(300).unsqueeze(0);
      const at::Tensor p = wanted.module().forward(tokens), q = coded.module().forward(tokens);
      CHECK((p - q).norm().item<double>() < 0.05 * p.norm().item<double>());
    }
  }
}

}  // namespace
}  // namespace halfbyte::models
