// Before and after: the dtype of every parameter and buffer under each policy, where each came from, and who shares it.
#include "tests/catch.h"

#include <map>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/low_bit_linear.h>

#include "quant/operators/torch_dtype.h"
#include "tests/loader/quantized.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

struct Expected {
  const char* policy;
  at::ScalarType head, norm, embedding, inv_freq;
};

// tiny-llama is recorded in bfloat16; its inv_freq is derived, in float32.
constexpr Expected kPolicies[] = {
    {"amp:bfloat16", at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat},
    {"amp:float16", at::kHalf, at::kBFloat16, at::kBFloat16, at::kFloat},
    {"half", at::kHalf, at::kHalf, at::kHalf, at::kHalf},
    {"bfloat16", at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16},
    {"float32", at::kFloat, at::kFloat, at::kFloat, at::kFloat},
    {"original", at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat},
};

Model load(const std::filesystem::path& path, const char* policy, std::vector<std::string> keep_float32 = {}) {
  return load_low_bit(path, {.dtype = DtypePolicy::parse(policy), .keep_float32 = std::move(keep_float32)});
}

TEST_CASE("every parameter and buffer has the dtype its policy says", "[policy]") {
  for (const Expected& expected : kPolicies) {
    INFO(expected.policy);
    const Model model = load(tests::quantized_tiny_llama(), expected.policy);
    int norms = 0;
    for (const auto& item : model.module().named_parameters()) {
      INFO(item.key());
      const bool is_norm = item.key().find("norm") != std::string::npos;
      norms += is_norm;
      const at::ScalarType wanted = is_norm                          ? expected.norm
                                    : item.key() == "lm_head.weight" ? expected.head
                                                                     : expected.embedding;
      CHECK(item.value().scalar_type() == wanted);
      CHECK_FALSE(item.value().requires_grad());
    }
    CHECK(norms == 9);
    CHECK(model.module().named_parameters().size() == 11);
    REQUIRE(model.module().named_buffers().size() == 1);
    CHECK(model.module().named_buffers()["model.rotary_emb.inv_freq"].scalar_type() == expected.inv_freq);
    CHECK_FALSE(model.module().is_training());
    CHECK_NOTHROW(model.module().check_contract());
  }
}

TEST_CASE("the report lists every tensor as it was recorded and as it was loaded", "[policy]") {
  for (const Expected& expected : kPolicies) {
    const Model model = load(tests::quantized_tiny_llama(), expected.policy);
    std::map<std::string, LoadedTensor> lines;
    for (const LoadedTensor& line : model.report().tensors) lines[line.name] = line;
    CHECK(lines.size() == 28 + 11 + 1);
    for (const auto& item : model.module().named_parameters()) {
      INFO(expected.policy << " " << item.key());
      REQUIRE(lines.contains(item.key()));
      CHECK(lines[item.key()].recorded == Dtype::kBfloat16);
      CHECK(lines[item.key()].loaded == name(*from_torch(item.value().scalar_type())));
      const bool is_cast = item.value().scalar_type() != at::kBFloat16;
      CHECK(lines[item.key()].placement == (is_cast ? Placement::kCast : Placement::kMapped));
      CHECK(lines[item.key()].bytes == item.value().nbytes());
    }
    CHECK(lines["model.layers.0.mlp.down_proj.weight"].loaded == "sym_int4 g64");
    CHECK(lines["model.layers.0.mlp.down_proj.weight"].placement == Placement::kMapped);
    CHECK(lines["model.rotary_emb.inv_freq"].placement == Placement::kDerived);
  }
}

TEST_CASE("keep_float32 wins over every policy", "[policy]") {
  for (const Expected& expected : kPolicies) {
    const Model model = load(tests::quantized_tiny_llama(), expected.policy, {"*norm*", "lm_head", "*inv_freq"});
    CHECK(model.module().named_parameters()["model.norm.weight"].scalar_type() == at::kFloat);
    CHECK(model.module().named_parameters()["lm_head.weight"].scalar_type() == at::kFloat);
    CHECK(model.module().named_buffers()["model.rotary_emb.inv_freq"].scalar_type() == at::kFloat);
    CHECK(model.generate({{1, 300, 301}}, {.max_gen_len = 4, .temperature = 0}).at(0).tokens.size() == 4);
  }
}

TEST_CASE("no cast of a module can touch packed codes", "[policy]") {
  const Model model = load(tests::quantized_tiny_llama(), "float32");
  LowBitLinear* linear = nullptr;
  for (const auto& module : model.module().modules()) {
    if (!linear) linear = dynamic_cast<LowBitLinear*>(module.get());
  }
  REQUIRE(linear != nullptr);
  const at::Tensor codes = linear->weight().codes.clone();
  model.module().to(at::kHalf);
  model.module().to(at::kCPU, at::kDouble);
  CHECK(linear->weight().codes.scalar_type() == at::kInt);
  CHECK(linear->weight().codes.equal(codes));
  CHECK(linear->weight().scales.scalar_type() == at::kBFloat16);
}

TEST_CASE("a module cast by hand is named by the contract check", "[policy]") {
  const Model model = load(tests::quantized_tiny_llama(), "amp:bfloat16");
  model.module().to(at::kHalf);
  CHECK_THROWS_WITH(model.module().check_contract(),
                    Catch::Contains("lm_head") && Catch::Contains("weight is Half") && Catch::Contains("dtype policy"));
}

TEST_CASE("weights are used where the file is mapped, and stay private to the process", "[policy]") {
  const auto read = [] {
    const Model model = load(tests::quantized_tiny_llama(), "bfloat16");
    return model.module().named_parameters()["model.norm.weight"].clone();
  };
  const at::Tensor before = read();
  {
    const Model model = load(tests::quantized_tiny_llama(), "bfloat16");
    CHECK(model.report().bytes_with(Placement::kCast) == 0);
    CHECK(model.report().bytes_with(Placement::kCopied) == 0);
    const c10::InferenceMode guard;
    model.module().named_parameters()["model.norm.weight"].fill_(7);
  }
  CHECK(read().equal(before));
}

TEST_CASE("tied weights are one storage under every policy", "[policy]") {
  const auto directory = tests::shared("fixtures/families/llama31-rope");
  if (!directory) HALFBYTE_SKIP("../shared/fixtures/families is not here");
  tests::Scratch scratch;
  convert::quantize(*directory, scratch / "tied");
  for (const auto& path : {*directory, scratch / "tied"}) {
    for (const Expected& expected : kPolicies) {
      const Model model = load(path, expected.policy);
      const auto parameters = model.module().named_parameters();
      CHECK(parameters["lm_head.weight"].data_ptr() == parameters["model.embed_tokens.weight"].data_ptr());
      CHECK(parameters["lm_head.weight"].scalar_type() == expected.head);
    }
  }
}

}  // namespace
}  // namespace halfbyte
