// Models of the families, out to GGUF and in again, against themselves: the same logits.
#include "tests/catch.h"

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "convert/gguf/export.h"
#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr const char* kFamilies[] = {
    "llama2",  "llama31-rope", "llama-yarn",       "qwen2",       "qwen3",      "phi3",     "gemma2",
    "glm4-9b", "chatglm2",     "mixtral",          "olmo2",       "olmo3",      "seed-oss", "ernie4.5",
    "granite", "smollm3",      "hunyuan-dense",    "cohere2",     "minimax-m2", "glm4-moe", "ministral3",
    "gemma3",  "granitemoe",   "gpt-oss",          "lfm2",        "qwen3-next", "qwen3.5",  "qwen3.5-moe",
    "gemma4",  "gemma4-moe",   "deepseek-v2-lite", "deepseek-v3", "gemma4-ple"};

at::Tensor logits_of(const std::filesystem::path& checkpoint, const at::Tensor& ids) {
  const c10::InferenceMode guard;
  return load_low_bit(checkpoint, {.dtype = DtypePolicy::float32()}).module().forward(ids);
}

// Matrices of 48 and of 16 columns, which are no whole blocks.
std::vector<std::string> kept_of(const std::string& family) {
  if (family == "deepseek-v3") return {"*q_b_proj*"};
  return family == "gemma4-ple" ? std::vector<std::string>{"*per_layer_projection.weight"} : std::vector<std::string>();
}

double distance(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
}

TEST_CASE("families: a GGUF file's logits are those of what it was exported from", "[families][gguf]") {
  tests::Scratch scratch;
  for (const std::string family : kFamilies) {
    INFO(family);
    const auto directory = tests::data("families") / family;
    const at::Tensor ids = tests::read_tensor(directory / "reference.safetensors", "input_ids");
    const at::Tensor reference = tests::read_tensor(directory / "reference.safetensors", "logits").to(at::kFloat);
    convert::export_gguf(directory, scratch / (family + ".gguf"));
    CHECK(distance(logits_of(scratch / (family + ".gguf"), ids), reference) <= 2e-4);
    for (const char* scheme : {"sym_int4", "sym_int8"}) {
      INFO(scheme);
      const auto packed = scratch / (family + scheme), file = scratch / (family + scheme + ".gguf");
      convert::quantize(directory, packed,
                        {.scheme = scheme, .group_size = 32, .halfbyte_only = true, .keep = kept_of(family)});
      convert::export_gguf(packed, file);
      CHECK(distance(logits_of(file, ids), logits_of(packed, ids)) <= 2e-6);
    }
  }
}

// What is rounded to another type on its way stays near: F16 rounds bfloat16 weights only where they are subnormal.
TEST_CASE("families: a GGUF file of another type has logits near those of the original", "[families][gguf]") {
  struct Bound {
    const char* type;
    double logits;
  };
  tests::Scratch scratch;
  for (const std::string family : {"olmo2", "granite", "cohere2", "gemma3", "seed-oss", "ministral3"}) {
    const auto directory = tests::data("families") / family;
    const at::Tensor ids = tests::read_tensor(directory / "reference.safetensors", "input_ids");
    const at::Tensor reference = tests::read_tensor(directory / "reference.safetensors", "logits").to(at::kFloat);
    for (const auto& [type, bound] : {Bound{"F16", 1e-3}, Bound{"BF16", 2e-4}, Bound{"Q8_0", 5e-2}}) {
      INFO(family << " " << type);
      const auto file = scratch / (family + type + ".gguf");
      convert::export_gguf(directory, file, {.type = type});
      CHECK(distance(logits_of(file, ids), reference) <= bound);
    }
  }
}

}  // namespace
}  // namespace halfbyte
