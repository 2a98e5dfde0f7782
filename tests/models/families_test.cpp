// Models of the families against what their own implementations computed: logits and greedy tokens.
#include "tests/catch.h"

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

struct Family {
  const char* name;
  double bound;  // of the largest difference, relative to the largest logit
};

// Measured on AVX-512: llama2 6.0e-7, llama31-rope 3.4e-7.
constexpr Family kFamilies[] = {{"llama2", 2e-4},     {"llama31-rope", 2e-4}, {"llama-yarn", 2e-4}, {"mistral-sw", 2e-4},
                                {"qwen2", 2e-4},      {"qwen3", 2e-4},        {"phi3", 2e-4},       {"gemma2", 2e-4},
                                {"glm4-9b", 2e-4},    {"chatglm2", 2e-4},     {"mixtral", 2e-4}};

TEST_CASE("logits and greedy tokens equal the reference implementation's in float32", "[families]") {
  for (const Family& family : kFamilies) {
    const auto directory = tests::shared(std::string("fixtures/families/") + family.name);
    if (!directory) HALFBYTE_SKIP("../shared/fixtures/families is not here");
    INFO(family.name);
    const auto reference = *directory / "reference.safetensors";
    const Model model = load_low_bit(*directory, {.dtype = DtypePolicy::float32()});
    const c10::InferenceMode guard;
    const at::Tensor wanted = tests::read_tensor(reference, "logits").to(at::kFloat);
    const at::Tensor logits = model.module().forward(tests::read_tensor(reference, "input_ids"));
    const double difference = (logits - wanted).abs().max().item<double>() / wanted.abs().max().item<double>();
    INFO("difference " << difference);
    CHECK(difference <= family.bound);
    const auto greedy = tests::to_ids(tests::read_tensor(reference, "greedy"));
    const auto prompt = tests::to_ids(tests::read_tensor(reference, "prompt"));
    const auto out = model.generate(
        {prompt}, {.max_gen_len = static_cast<std::int64_t>(greedy.size()), .temperature = 0, .ignore_eos = true});
    CHECK(out.at(0).tokens == greedy);
  }
}

}  // namespace
}  // namespace halfbyte
