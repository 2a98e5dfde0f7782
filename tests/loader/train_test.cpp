// Training by a host's own optimizer: LibTorch's, of adapters and of weights; what is refused before a step.
#include <halfbyte/train.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/catch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using training::kUnscored;
using training::Sequence;

Model loaded(const DtypePolicy& policy = DtypePolicy::amp()) {
  return load_low_bit(tests::data("tiny-llama"), {.dtype = policy, .compute = ComputeMode::kFloat});
}

// Of a text that repeats itself: what comes next is learnt within a few steps.
std::vector<Sequence> sequences() {
  std::vector<Sequence> out;
  for (std::int64_t i = 0; i < 4; ++i) {
    Sequence one;
    for (std::int64_t at = 0; at < 24; ++at) {
      one.tokens.push_back(5 + (i + at) % 6 * 31);
      one.labels.push_back(at < 3 ? kUnscored : 5 + (i + at + 1) % 6 * 31);
    }
    one.lengths = {10, 14};
    out.push_back(std::move(one));
  }
  return out;
}

torch::optim::AdamW adamw(std::vector<at::Tensor> parameters, double rate = 2e-2) {
  return torch::optim::AdamW(std::move(parameters), torch::optim::AdamWOptions(rate).weight_decay(0));
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& one : tensors) out.push_back(one.detach().clone());
  return out;
}

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

// That of each weight of a loaded model.
void want_gradients(const Model& model) {
  for (at::Tensor one : model.module().parameters()) one.requires_grad_(true);
}

std::string refusal(const Model& model, torch::optim::Optimizer& optimizer, ErrorCode code,
                    const TrainOptions& options = {}, const std::vector<Sequence>& texts = sequences()) {
  try {
    train(model.module(), optimizer, texts, options);
    return "none";
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
}

}  // namespace

TEST_CASE("adapters beside weights of any kind learn by LibTorch's AdamW, and the weights stay", "[train]") {
  const tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "nf4"});
  const Model models[] = {
      loaded(), loaded(DtypePolicy::float32()),
      load_low_bit(scratch / "packed", {.dtype = DtypePolicy::amp(), .compute = ComputeMode::kFloat})};
  for (const Model& model : models) {
    const Lora lora(model.module(), {.rank = 4, .seed = 3});
    const std::vector<at::Tensor> before = copies(model.module().parameters());
    torch::optim::AdamW optimizer = adamw(lora.parameters());
    const std::vector<double> losses =
        train(model.module(), optimizer, sequences(), {.steps = 15, .batch = 2, .adapters = &lora});
    REQUIRE(losses.size() == 15);
    CHECK(losses.back() < 0.5 * losses.front());
    CHECK(are_equal(model.module().parameters(), before));
    for (const at::Tensor& one : lora.parameters()) CHECK(one.grad().scalar_type() == at::kFloat);
  }
}

TEST_CASE("weights of a model in float32 learn by LibTorch's SGD under bfloat16 products", "[train]") {
  const Model model = loaded();
  model.module().to(torch::kFloat);
  want_gradients(model);
  torch::optim::SGD optimizer(model.module().parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<double> told;
  const std::vector<double> losses =
      train(model.module(), optimizer, sequences(), {.steps = 20, .batch = 4, .on_step = [&](const TrainStep& step) {
                                                       told.push_back(step.loss);
                                                       CHECK(step.step == std::ssize(told));
                                                       CHECK(step.tokens == 4 * 21);
                                                       CHECK(step.sequences.size() == 4);
                                                       CHECK(step.was_updated);
                                                       CHECK(std::isfinite(step.gradient_norm));
                                                     }});
  CHECK(told == losses);
  CHECK(losses.back() < 0.5 * losses.front());
}

TEST_CASE("a model that was cast to bfloat16 is refused by name before a step, with the cure", "[train]") {
  const Model model = loaded();
  model.module().to(torch::kBFloat16);
  want_gradients(model);
  const std::vector<at::Tensor> before = copies(model.module().parameters());
  torch::optim::AdamW optimizer = adamw(model.module().parameters());
  std::int64_t steps = 0;
  const std::string said =
      refusal(model, optimizer, ErrorCode::kContract, {.on_step = [&](const TrainStep&) { ++steps; }});
  CHECK(steps == 0);
  CHECK(are_equal(model.module().parameters(), before));
  CHECK(said.find("model.embed_tokens.weight is bfloat16 [") != std::string::npos);
  CHECK(said.find("updates smaller than its last bit are lost") != std::string::npos);
  CHECK(said.find("module.to(torch::kFloat)") != std::string::npos);
  CHECK(said.find("more)") != std::string::npos);
  const std::size_t cure = said.find("Autocast");
  CHECK(said.find("Autocast", cure + 1) == std::string::npos);  // once for all of them

  const Model masters = loaded();  // as the cure says
  masters.module().to(torch::kFloat);
  want_gradients(masters);
  torch::optim::AdamW other = adamw(masters.module().parameters(), 1e-3);
  CHECK(train(masters.module(), other, sequences(), {.steps = 1}).size() == 1);
}

TEST_CASE("adapters in bfloat16 are refused, as those that the optimizer lacks are", "[train]") {
  const Model model = loaded();
  const Lora lora(model.module(), {.rank = 2});
  std::vector<at::Tensor> some = lora.parameters();
  some.pop_back();
  torch::optim::AdamW lacks = adamw(some);
  CHECK(refusal(model, lacks, ErrorCode::kContract, {.adapters = &lora}).find(".lora_B wants gradients but") !=
        std::string::npos);
  torch::optim::AdamW whole = adamw(lora.parameters());
  CHECK(refusal(model, whole, ErrorCode::kContract).find("not a parameter of the module") != std::string::npos);
  at::Tensor(lora.adapters()[1].a).set_data(lora.adapters()[1].a.to(at::kBFloat16));
  const std::string said = refusal(model, whole, ErrorCode::kContract, {.adapters = &lora});
  CHECK(said.find(lora.adapters()[1].name + ".lora_A is bfloat16 [2, ") != std::string::npos);
}

TEST_CASE("what an Autocast around it would have, the model's policy decides", "[train]") {
  const auto run = [](bool is_under_autocast) {
    const Model model = loaded(DtypePolicy::float32());
    const Lora lora(model.module(), {.rank = 4, .seed = 3});
    torch::optim::AdamW optimizer = adamw(lora.parameters());
    std::optional<Autocast> autocast;
    if (is_under_autocast) autocast.emplace();
    const TrainOptions options{.steps = 3, .adapters = &lora, .on_step = [&](const TrainStep&) {
                                 CHECK(at::autocast::is_autocast_enabled(at::kCPU) == is_under_autocast);
                               }};
    return std::pair(train(model.module(), optimizer, sequences(), options), copies(lora.parameters()));
  };
  const auto plain = run(false), under = run(true);
  CHECK(plain.first == under.first);
  CHECK(are_equal(plain.second, under.second));
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("gradients of batches that are added up are those of one batch", "[train]") {
  const auto trained = [](std::int64_t batch, std::int64_t accumulate, bool recomputes) {
    const Model model = loaded(DtypePolicy::float32());
    const Lora lora(model.module(), {.rank = 4, .seed = 3});
    torch::optim::SGD optimizer(lora.parameters(), torch::optim::SGDOptions(0.5));
    const auto losses =
        train(model.module(), optimizer, sequences(),
              {.steps = 4, .batch = batch, .accumulate = accumulate, .recomputes = recomputes, .adapters = &lora});
    return losses.back();
  };
  const double wanted = trained(4, 1, true);
  CHECK(trained(4, 1, true) == wanted);
  CHECK(trained(4, 1, false) == Approx(wanted).epsilon(1e-5));
  CHECK(trained(2, 2, true) == Approx(wanted).epsilon(1e-4));
  CHECK(trained(1, 4, true) == Approx(wanted).epsilon(1e-4));
}

TEST_CASE("a loop of one's own from the same parts does the same", "[train]") {
  const std::vector<Sequence> texts = {sequences().front()};
  const auto lora_of = [](const Model& model) { return Lora(model.module(), {.rank = 4, .seed = 3}); };
  const Model model = loaded();
  const Lora mine = lora_of(model), theirs = lora_of(model);
  torch::optim::AdamW optimizer = adamw(mine.parameters()), other = adamw(theirs.parameters());
  assert_trainable(model.module(), optimizer, &mine);
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Sequence* row = &texts.front();
    const double scored = 21;
    {
      const Lora::Scope scope(mine, step);
      losses.push_back(training::backward(model.module(), std::span(&row, 1), {.scale = 1 / scored}) / scored);
    }
    optimizer.step();
  }
  CHECK(train(model.module(), other, texts, {.steps = 3, .clip = 0, .adapters = &theirs}) == losses);
  CHECK(are_equal(mine.parameters(), theirs.parameters()));
}

TEST_CASE("schedules have their place after a step, and a stop is heeded", "[train]") {
  const Model model = loaded();
  const Lora lora(model.module(), {.rank = 2});
  torch::optim::AdamW optimizer = adamw(lora.parameters(), 1e-2);
  torch::optim::StepLR schedule(optimizer, 1, 0.5);
  std::stop_source stop;
  const std::vector<double> losses = train(model.module(), optimizer, sequences(),
                                           {.steps = 100,
                                            .adapters = &lora,
                                            .on_step =
                                                [&](const TrainStep& step) {
                                                  schedule.step();
                                                  if (step.step == 3) stop.request_stop();
                                                },
                                            .stop = stop.get_token()});
  CHECK(losses.size() == 3);
  CHECK(optimizer.param_groups().front().options().get_lr() == Approx(1e-2 / 4));  // a schedule's first step is none
}

TEST_CASE("what train cannot do is refused with what to do", "[train]") {
  const Model model = loaded();
  const Lora lora(model.module(), {.rank = 2});
  torch::optim::AdamW optimizer = adamw(lora.parameters());
  const auto said = [&](const TrainOptions& options, const std::vector<Sequence>& texts = sequences()) {
    return refusal(model, optimizer, ErrorCode::kInvalidArgument, options, texts);
  };
  CHECK(said({.steps = -1, .adapters = &lora}) != "none");
  CHECK(said({.batch = 0, .adapters = &lora}) != "none");
  CHECK(said({.accumulate = 0, .adapters = &lora}) != "none");
  CHECK(said({.clip = std::nan(""), .adapters = &lora}) != "none");
  CHECK(said({.adapters = &lora}, {}).find("no sequence") != std::string::npos);
  const auto changed = [](auto change) {
    std::vector<Sequence> out = sequences();
    change(out[2]);
    return out;
  };
  const TrainOptions options{.batch = 4, .adapters = &lora};
  CHECK(said(options, changed([](Sequence& s) { s.labels.assign(24, kUnscored); })).find("scored in sequence 2") !=
        std::string::npos);
  CHECK(said(options, changed([](Sequence& s) { s.tokens[3] = 1024; })).find("0 to 1023") != std::string::npos);
  CHECK(said(options, changed([](Sequence& s) { s.labels[3] = -1; })).find("0 to 1023") != std::string::npos);
  CHECK(said(options, changed([](Sequence& s) { s.labels.resize(4000, 7); })).find("as many labels") !=
        std::string::npos);
  CHECK(said(options, changed([](Sequence& s) { s.lengths = {30, -6}; })) != "none");
  torch::optim::LBFGS lbfgs(lora.parameters(), torch::optim::LBFGSOptions(1));
  CHECK(refusal(model, lbfgs, ErrorCode::kInvalidArgument, {.adapters = &lora}).find("LBFGS") != std::string::npos);
  {
    const c10::InferenceMode inference;
    CHECK(said({.adapters = &lora}).find("InferenceMode") != std::string::npos);
  }
  const Model narrow = loaded(DtypePolicy::bfloat16());
  const Lora beside(narrow.module(), {.rank = 2});
  torch::optim::AdamW other = adamw(beside.parameters());
  CHECK(refusal(narrow, other, ErrorCode::kUnsupported, {.adapters = &beside}).find("amp:bfloat16 or float32") !=
        std::string::npos);
}

TEST_CASE("losses that are no numbers end training, and what diverged is said", "[train]") {
  const Model model = loaded();
  const Lora lora(model.module(), {.rank = 2});
  torch::optim::SGD optimizer(lora.parameters(), torch::optim::SGDOptions(1e30));
  const std::string said = refusal(model, optimizer, ErrorCode::kContract, {.steps = 20, .adapters = &lora});
  CHECK(said.find("of step ") != std::string::npos);
  CHECK(said.find("lower learning rate") != std::string::npos);
}

}  // namespace halfbyte
