// The fused experts against the module, and which have no fused form.
#include "models/cpu/module_experts.h"

#include <filesystem>
#include <optional>
#include <stop_token>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "models/modules/mlp.h"
#include "models/sessions/pass_watch.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using models::MixtureOfExperts;

std::vector<const MixtureOfExperts*> experts_of(const Model& model) {
  std::vector<const MixtureOfExperts*> out;
  for (const auto& module : model.module().modules()) {
    if (const auto* experts = dynamic_cast<const MixtureOfExperts*>(module.get())) out.push_back(experts);
  }
  REQUIRE(!out.empty());
  return out;
}

at::Tensor random_tokens(const Model& model, std::int64_t tokens) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(tokens));
  return at::randn({1, tokens, model.module().config().hidden_size}, generator, at::kFloat);
}

// Whether they ran in their fused form, and what they gave.
std::optional<at::Tensor> fused(const MixtureOfExperts& experts, const at::Tensor& x, models::cpu::ExpertsWork& work) {
  models::cpu::Buffer output;
  if (!models::cpu::has_form(experts)) return std::nullopt;
  if (!models::cpu::run_experts(models::cpu::ModuleExperts(experts), x.const_data_ptr<float>(), x.size(1), work,
                                output, nullptr))
    return std::nullopt;
  return at::from_blob(output.floats(0), x.sizes(), at::kFloat).clone();
}

void check_alike(const Model& model, double bound) {
  const c10::InferenceMode guard;
  models::cpu::ExpertsWork work;  // kept, as a model does
  for (const MixtureOfExperts* experts : experts_of(model)) {
    for (const std::int64_t tokens : {1, 300, 2, 70, 5}) {
      const at::Tensor x = random_tokens(model, tokens), wanted = experts->forward(x);
      const auto found = fused(*experts, x, work);
      REQUIRE(found);
      INFO(tokens << " tokens");
      CHECK((*found - wanted).abs().max().item<double>() <= bound * wanted.abs().max().item<double>());
    }
  }
}

constexpr const char* kFused[] = {"families/mixtral",     "families/granitemoe", "families/minimax-m2",
                                  "families/glm4-moe",    "families/qwen3-next", "families/deepseek-v2-lite",
                                  "families/deepseek-v3", "families/qwen3.5-moe"};

TEST_CASE("fused experts give what the module gives", "[experts]") {
  for (const char* name : kFused) {
    INFO(name);
    check_alike(load_low_bit(tests::data(name), {.dtype = DtypePolicy::float32()}), 2e-6);
  }
}

TEST_CASE("fused experts give what the module gives with packed weights", "[experts]") {
  const tests::Scratch scratch;
  for (const char* name : {"families/mixtral", "families/glm4-moe"}) {
    INFO(name);
    const auto packed = scratch / ("packed-" + std::filesystem::path(name).filename().string());
    convert::quantize(tests::data(name), packed, {.scheme = "sym_int4", .group_size = 32});
    for (const ComputeMode compute : {ComputeMode::kFloat, ComputeMode::kInt8})
      check_alike(load_low_bit(packed, {.dtype = DtypePolicy::float32(), .compute = compute}), 2e-6);
  }
}

TEST_CASE("experts without a fused form run as a module", "[experts]") {
  const c10::InferenceMode guard;
  models::cpu::ExpertsWork work;
  for (const char* name : {"families/llama4", "families/phimoe", "families/gpt-oss"}) {
    INFO(name);
    const Model model = load_low_bit(tests::data(name), {.dtype = DtypePolicy::float32()});
    for (const MixtureOfExperts* experts : experts_of(model)) {
      CHECK(!models::cpu::has_form(*experts));  // so that no router is asked in vain
      CHECK(!fused(*experts, random_tokens(model, 3), work));
    }
  }
}

TEST_CASE("fused experts look at the watch between their products, and between slices of them", "[experts]") {
  const Model model = load_low_bit(tests::data("families/mixtral"), {.dtype = DtypePolicy::float32()});
  const c10::InferenceMode guard;
  models::cpu::ExpertsWork work;
  const at::Tensor x = random_tokens(model, 300), wanted = experts_of(model)[0]->forward(x);
  std::stop_source stop;
  const models::PassWatch watch(stop.get_token(), {}, /*products=*/1000);
  const auto found = fused(*experts_of(model)[0], x, work);
  REQUIRE(found);
  CHECK((*found - wanted).abs().max().item<double>() <= 2e-6 * wanted.abs().max().item<double>());
  stop.request_stop();
  CHECK_THROWS_AS(fused(*experts_of(model)[0], x, work), Error);
}

}  // namespace
}  // namespace halfbyte
