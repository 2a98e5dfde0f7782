// Adapters beside packed weights: gradients against differences, layers run twice, files, and a whole run.
#include <halfbyte/lora.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <halfbyte/adapter.h>
#include <halfbyte/backward.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/finetune.h>
#include <halfbyte/load_low_bit.h>

#include "convert/adapters/peft_files.h"
#include "models/sessions/session.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using tests::Scratch;

std::filesystem::path tiny_llama() { return tests::data("tiny-llama"); }

Model loaded(const std::filesystem::path& path) {
  return load_low_bit(path, {.dtype = DtypePolicy::float32(), .compute = ComputeMode::kFloat});
}

const std::vector<std::int64_t> kTokens = {1, 265, 350, 816, 20, 7, 99, 512, 3, 44};

at::Tensor tokens() { return at::tensor(kTokens, at::kLong); }

training::Sequence sequence() {
  return {{kTokens.begin(), kTokens.end() - 1}, {kTokens.begin() + 1, kTokens.end()}, {9}};
}

double loss_of(const Model& model, const Lora& lora, std::int64_t step = -1) {
  const Lora::Scope scope(lora, step);
  const training::Sequence one = sequence(), *row = &one;
  return training::summed_loss(model.module(), std::span(&row, 1));
}

// Gradients flow to an adapter's A only where B is not zero.
void fill(const Lora& lora) {
  const at::NoGradGuard no_gradients;
  for (const Lora::Adapter& one : lora.adapters()) at::Tensor(one.b).uniform_(-0.05, 0.05);
}

// Of one element, from the loss at two distances on both sides: what is left out grows with the fourth power of them.
double difference(const Model& model, const Lora& lora, at::Tensor parameter, std::int64_t at) {
  const at::NoGradGuard no_gradients;
  const at::Tensor element = parameter.view(-1).narrow(0, at, 1);
  const float before = element.item<float>(), step = 1e-2F;
  const auto over = [&](float distance) {
    element.fill_(before + distance);
    const double above = loss_of(model, lora);
    element.fill_(before - distance);
    return above - loss_of(model, lora);
  };
  const double slope = (8 * over(step) - over(2 * step)) / (12.0 * step);
  element.fill_(before);
  return slope;
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("gradients of adapters beside packed weights are those of differences of the loss", "[training]") {
  const Scratch scratch;
  const auto [scheme, group_size] =
      GENERATE(std::pair("sym_int4", 32), std::pair("asym_int4", 64), std::pair("nf4", 64), std::pair("sym_int8", 64));
  convert::quantize(tiny_llama(), scratch / "packed", {.scheme = scheme, .group_size = group_size});
  const Model model = loaded(scratch / "packed");
  const Lora lora(model.module(), {.rank = 4, .targets = {"layers.0", "layers.3"}, .seed = 7});
  fill(lora);
  {
    const Lora::Scope scope(lora);
    const training::Sequence one = sequence(), *row = &one;
    training::backward(model.module(), std::span(&row, 1));
  }
  double off = 0, size = 0;
  for (const at::Tensor& parameter : lora.parameters()) {
    const std::int64_t at = parameter.grad().abs().argmax().item<std::int64_t>();  // where a difference is no rounding
    const double gradient = parameter.grad().view(-1)[at].item<double>();
    off += std::pow(gradient - difference(model, lora, parameter, at), 2);
    size += gradient * gradient;
  }
  CHECK(std::sqrt(off / size) < 5e-4);
}

TEST_CASE("adapters that begin as zeros change nothing, and their order of magnitude is peft's", "[training]") {
  const Model model = loaded(tiny_llama());
  const Lora lora(model.module(), {.rank = 8, .seed = 1});
  CHECK(lora.adapters().size() == 28);  // all Linears of four layers, not the head
  CHECK(lora.scaling() == 2.0);
  const auto logits = [&] {
    models::Session session = model.module().make_session();
    return model.module().head(model.module().hidden(tokens().unsqueeze(0), session));
  };
  const at::Tensor plain = logits();
  const Lora::Scope scope(lora);
  const at::Tensor beside = logits();
  CHECK((beside - plain).abs().max().item<float>() < 1e-4F * plain.abs().max().item<float>());
  const at::Tensor& a = lora.adapters().front().a;
  CHECK(a.abs().max().item<double>() <= 1 / std::sqrt(192.0));
}

TEST_CASE("dropout is the same where a layer runs again, and another in each step", "[training]") {
  const Model model = loaded(tiny_llama());
  const Lora lora(model.module(), {.rank = 4, .dropout = 0.5, .seed = 3});
  fill(lora);
  CHECK(loss_of(model, lora, 5) == loss_of(model, lora, 5));
  CHECK(loss_of(model, lora, 5) != loss_of(model, lora, 6));
  CHECK(loss_of(model, lora) == loss_of(model, lora));
}

TEST_CASE("what cannot be an adapter is refused by name", "[training]") {
  const Model model = loaded(tiny_llama());
  const auto refused = [&](const LoraOptions& options, const std::string& words) {
    CHECK_THROWS_WITH(Lora(model.module(), options), Catch::Contains(words));
  };
  refused({.rank = 0}, "rank");
  refused({.dropout = 1}, "dropout");
  refused({.targets = {"nothing"}}, "'nothing' names no Linear");
  const at::Tensor a = at::zeros({2, 5}), b = at::zeros({192, 2});
  CHECK_THROWS_WITH(Lora(model.module(), {}, {{"model.layers.0.self_attn.q_proj", a, b}}),
                    Catch::Contains("does not fit"));
  CHECK_THROWS_WITH(Lora(model.module(), {}, {{"model.layers.9.self_attn.q_proj", a, b}}),
                    Catch::Contains("has no Linear"));
}

TEST_CASE("a run of fine-tuning lowers the loss, is the same again, and what it wrote is read back", "[training]") {
  const Scratch scratch;
  convert::quantize(tiny_llama(), scratch / "packed", {.scheme = "nf4"});
  std::ofstream(scratch / "text.txt") << bytes_of(tests::data("heldout.txt")).substr(0, 400);
  const std::filesystem::path text = scratch / "text.txt";
  convert::FinetuneOptions options{.steps = 12, .batch = 2, .context = 32, .learning_rate = 5e-3};
  options.lora = {.rank = 4, .dropout = 0.1};
  const convert::FinetuneSummary done = convert::finetune(scratch / "packed", text, scratch / "a", options);
  REQUIRE(done.steps == 12);
  const auto mean = [&](std::size_t begin) {
    double sum = 0;
    for (std::size_t i = begin; i < begin + 4; ++i) sum += done.losses[i];
    return sum / 4;
  };
  CHECK(mean(8) < 0.9 * mean(0));
  CHECK(done.sequences < 8);
  convert::finetune(scratch / "packed", text, scratch / "b", options);
  CHECK(bytes_of(scratch / "a" / "adapter_model.safetensors") == bytes_of(scratch / "b" / "adapter_model.safetensors"));
  CHECK_THROWS_AS(convert::finetune(scratch / "packed", text, scratch / "a", options), Error);

  const Model model = loaded(scratch / "packed");
  const auto lora = convert::read_peft_adapter(model.module(), scratch / "a");
  const Lora none(model.module(), {.rank = 1});
  CHECK(lora->adapters().size() == 28);
  CHECK(loss_of(model, *lora) != loss_of(model, none));
  const std::vector<Generation> plain = model.generate({{1, 265, 350}}, {.max_gen_len = 8, .temperature = 0});
  {
    const convert::Adapter beside(model, scratch / "a");
    CHECK(model.generate({{1, 265, 350}}, {.max_gen_len = 8, .temperature = 0})[0].tokens.size() == 8);
  }
  CHECK(model.generate({{1, 265, 350}}, {.max_gen_len = 8, .temperature = 0})[0].tokens == plain[0].tokens);
}

TEST_CASE("a run that is stopped keeps what it goes on from", "[training]") {
  const Scratch scratch;
  std::stop_source stop;
  convert::FinetuneOptions options{.steps = 50, .batch = 1, .context = 16};
  options.stop = stop.get_token();
  options.on_step = [&](const convert::FinetuneStep& step) {
    if (step.step == 3) stop.request_stop();
  };
  const auto done = convert::finetune(tiny_llama(), tests::data("heldout.txt"), scratch / "a", options);
  CHECK(done.was_stopped);
  CHECK(done.steps == 3);
  CHECK_FALSE(std::filesystem::exists(scratch / "a"));
  CHECK(std::filesystem::exists(scratch / "a.partial"));
}

TEST_CASE("adapters that are broken, or of another kind, are refused", "[training]") {
  const Scratch scratch;
  const Model model = loaded(tiny_llama());
  const auto refused = [&](const std::string& config, const std::string& words) {
    std::filesystem::create_directories(scratch / "x");
    std::ofstream(scratch / "x" / "adapter_config.json") << config;
    std::ofstream(scratch / "x" / "adapter_model.safetensors") << "nothing";
    CHECK_THROWS_WITH(convert::Adapter(model, scratch / "x"), Catch::Contains(words));
  };
  CHECK_THROWS_AS(convert::Adapter(model, scratch / "nowhere"), Error);
  refused("{", "adapter_config.json");
  refused("{}", "peft_type");
  refused(R"({"peft_type": "IA3", "r": 1, "lora_alpha": 1})", "peft_type");
  refused(R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "bias": "all"})", "bias");
  refused(R"({"peft_type": "LORA", "r": "x", "lora_alpha": 1})", "adapter_config.json");
  refused(R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1})", "adapter_model.safetensors");
}

}  // namespace halfbyte
