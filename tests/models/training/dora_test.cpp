// Weight-decomposed adapters, and several beside one Linear: what they compute, their gradients, and their files.
#include <cmath>

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <nlohmann/json.hpp>

#include <halfbyte/adapter.h>
#include <halfbyte/backward.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/lora.h>
#include <halfbyte/merge.h>

#include "convert/adapters/peft_files.h"
#include "convert/output/destination.h"
#include "models/sessions/session.h"
#include "tests/convert/merge/adapter_files.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using convert::WeightedAdapter;
using testing::check_error;
using testing::Scratch;
using testing::TestModule;

Model loaded(const std::filesystem::path& path) {
  return load_low_bit(path, {.dtype = DtypePolicy::float32(), .compute = ComputeMode::kFloat});
}

const std::vector<std::int64_t> kTokens = {1, 265, 350, 816, 20, 7, 99, 512, 3, 44};

at::Tensor tokens() { return at::tensor(kTokens, at::kLong); }

training::Sequence sequence() {
  return {{kTokens.begin(), kTokens.end() - 1}, {kTokens.begin() + 1, kTokens.end()}, {9}};
}

at::Tensor logits(const Model& model) {
  const at::NoGradGuard without;
  models::Session session = model.module().make_session();
  return model.module().head(model.module().hidden(tokens().unsqueeze(0), session));
}

double farthest(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

double loss_of(const Model& model, const Lora& lora) {
  const Lora::Scope scope(lora);
  const training::Sequence one = sequence(), *row = &one;
  return training::summed_loss(model.module(), std::span(&row, 1));
}

// A and B away from where they begin.
void fill(Lora& lora) {
  const at::NoGradGuard without;
  for (const Lora::Adapter& one : lora.adapters()) at::Tensor(one.b).uniform_(-0.05, 0.05);
  lora.refresh();
}

// Of tiny-llama, in float32.
std::filesystem::path plain(const Scratch& scratch) {
  convert::dequantize(tests::data("tiny-llama"), scratch / "plain", {.dtype = Dtype::kFloat32});
  return scratch / "plain";
}

}  // namespace

TEST_CASE("a weight-decomposed adapter changes nothing where it begins", "[training]") {
  const Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "nf4"});
  const Model model = loaded(scratch / "packed");
  const at::Tensor before = logits(model);
  const Lora lora(model.module(), {.rank = 4, .is_weight_decomposed = true});
  CHECK(lora.parameters().size() == 3 * lora.adapters().size());
  const Lora::Scope scope(lora);
  CHECK(farthest(logits(model), before) < 1e-5);
}

// The norm counts as a constant, so differences are taken without refresh().
TEST_CASE("gradients of weight-decomposed adapters are those of differences of the loss", "[training]") {
  const Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "sym_int4"});
  const Model model = loaded(scratch / "packed");
  Lora lora(model.module(), {.rank = 4, .is_weight_decomposed = true, .targets = {"layers.0", "layers.3"}, .seed = 7});
  fill(lora);
  {
    const Lora::Scope scope(lora);
    const training::Sequence one = sequence(), *row = &one;
    training::backward(model.module(), std::span(&row, 1));
  }
  const at::NoGradGuard without;
  double off = 0, size = 0;
  for (const at::Tensor& parameter : lora.parameters()) {
    const auto at = parameter.grad().abs().argmax().item<std::int64_t>();  // where a difference is no rounding
    const at::Tensor element = parameter.view(-1).narrow(0, at, 1);
    const double before = element.item<double>(), step = 1e-2;
    const auto over = [&](double distance) {
      element.fill_(before + distance);
      const double above = loss_of(model, lora);
      element.fill_(before - distance);
      return above - loss_of(model, lora);
    };
    const double slope = (8 * over(step) - over(2 * step)) / (12 * step);
    element.fill_(before);
    const auto gradient = parameter.grad().view(-1)[at].item<double>();
    off += std::pow(gradient - slope, 2);
    size += gradient * gradient;
  }
  CHECK(std::sqrt(off / size) < 5e-4);
}

TEST_CASE("adapters beside a model are what merging makes of it: LoRA, DoRA, several, patterns", "[training]") {
  const Scratch scratch;
  const std::filesystem::path base = plain(scratch);
  const TestModule query{"model.layers.0.self_attn.q_proj", 192, 192, 3};
  const TestModule wide{"model.layers.2.self_attn.q_proj", 192, 192, 5};
  const TestModule turned{"model.layers.0.self_attn.q_proj", 192, 192, 2, true};
  testing::ordered_json config = testing::peft_config(3, 1);
  config["rank_pattern"] = {{"layers.2.self_attn.q_proj", 5}};
  config["alpha_pattern"] = {{"layers.0.self_attn.q_proj", 2}};
  testing::write_adapter(scratch / "lora", testing::adapter_tensors({query, wide}), config);
  testing::ordered_json decomposed = testing::peft_config(2, 1);
  decomposed["use_dora"] = true;
  decomposed["use_rslora"] = true;
  testing::write_adapter(scratch / "dora", testing::adapter_tensors({turned}), decomposed);
  const std::vector<WeightedAdapter> adapters{{scratch / "lora", 0.5}, {scratch / "dora", 0.25}};
  convert::merge(base, adapters, scratch / "merged");
  const Model model = loaded(base);
  const at::Tensor without = logits(model), merged = logits(loaded(scratch / "merged"));
  CHECK(farthest(without, merged) > 1e-2);
  {
    const convert::Adapter beside(model, adapters);
    CHECK(farthest(logits(model), merged) < 1e-4);
  }
  CHECK(at::equal(logits(model), without));
}

TEST_CASE("a bias is no part of what a magnitude scales", "[training]") {
  const Scratch scratch;
  const std::filesystem::path base = tests::data("families/qwen2");
  const Model model = loaded(base);
  const std::string name = "model.layers.0.self_attn.q_proj";
  const at::Tensor weight = model.module().named_parameters()[name + ".weight"];
  const TestModule module{name, weight.size(0), weight.size(1), 2, true};
  testing::ordered_json config = testing::peft_config(2, 1);
  config["use_dora"] = true;
  testing::write_adapter(scratch / "dora", testing::adapter_tensors({module}), config);
  convert::dequantize(base, scratch / "plain", {.dtype = Dtype::kFloat32});
  const std::vector<WeightedAdapter> adapters{{scratch / "dora"}};
  convert::merge(scratch / "plain", adapters, scratch / "merged");
  const at::Tensor ids = at::tensor({1, 2, 3, 4}, at::kLong).unsqueeze(0);
  const auto run = [&](const Model& one) {
    const at::NoGradGuard no_gradients;
    return one.module().forward(ids);
  };
  const at::Tensor merged = run(loaded(scratch / "merged"));
  const convert::Adapter beside(model, adapters);
  CHECK(farthest(run(model), merged) < 1e-4);
}

TEST_CASE("weight-decomposed adapters are written and read back, with what they are trained further by", "[training]") {
  const Scratch scratch;
  const Model model = loaded(tests::data("tiny-llama"));
  Lora lora(model.module(), {.rank = 4, .is_weight_decomposed = true, .targets = {"q_proj"}, .seed = 3});
  fill(lora);
  convert::Destination destination(scratch / "a", {});
  convert::write_peft_adapter(lora, "base", destination);
  destination.commit();
  const auto config = testing::ordered_json::parse(testing::read_text(scratch / "a" / "adapter_config.json"));
  CHECK(config["use_dora"] == true);
  const auto again = convert::read_peft_adapter(model.module(), scratch / "a", {.dropout = 0.25, .seed = 9});
  CHECK(again->options().dropout == 0.25);
  CHECK(again->options().is_weight_decomposed);
  const auto wanted = lora.named_parameters(), found = again->named_parameters();
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].first == wanted[i].first);
    CHECK(at::equal(found[i].second, wanted[i].second));
    CHECK(found[i].second.requires_grad());
  }
  CHECK(loss_of(model, *again) == loss_of(model, lora));
}

TEST_CASE("ranks and alphas of single modules are written as patterns", "[training]") {
  const Scratch scratch;
  const Model model = loaded(tests::data("tiny-llama"));
  const TestModule query{"model.layers.0.self_attn.q_proj", 192, 192, 3};
  testing::ordered_json config = testing::peft_config(8, 4);
  config["rank_pattern"] = {{"q_proj", 3}};
  config["alpha_pattern"] = {{"q_proj", 6}};
  testing::write_adapter(scratch / "a", testing::adapter_tensors({query}), config);
  const auto lora = convert::read_peft_adapter(model.module(), scratch / "a");
  convert::Destination destination(scratch / "b", {});
  convert::write_peft_adapter(*lora, "base", destination);
  destination.commit();
  const auto written = testing::ordered_json::parse(testing::read_text(scratch / "b" / "adapter_config.json"));
  CHECK(written["r"] == 8);
  CHECK(written["rank_pattern"][query.name] == 3);
  CHECK(written["alpha_pattern"][query.name] == 6.0);
  CHECK(loss_of(model, *convert::read_peft_adapter(model.module(), scratch / "b")) == loss_of(model, *lora));
}

TEST_CASE("adapters of another model are refused by name", "[training]") {
  const Scratch scratch;
  const Model model = loaded(tests::data("tiny-llama"));
  testing::write_adapter(scratch / "a", testing::adapter_tensors({{"model.layers.9.mlp.up_proj", 8, 192, 2}}),
                         testing::peft_config(2, 1));
  const std::vector<WeightedAdapter> adapters{{scratch / "a"}};
  check_error(ErrorCode::kInvalidArgument, {"model.layers.9.mlp.up_proj"},
              [&] { const convert::Adapters beside(model, adapters); });
  check_error(ErrorCode::kInvalidArgument, {"no adapter"},
              [&] { const convert::Adapters beside(model, std::vector<WeightedAdapter>()); });
}

}  // namespace halfbyte
