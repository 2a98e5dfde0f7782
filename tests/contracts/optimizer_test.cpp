// "parameter in optimizer is not FP32": what half-precision parameters do to training, and that float32 masters under
// autocast do as well as float32 throughout.
#include "tests/catch.h"

#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <halfbyte/convert.h>
#include <halfbyte/load_state.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/operators.h>
#include <halfbyte/training.h>

#include "tests/contracts/packed_weight.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte {
namespace {

using Catch::Contains;
using testing::float_tensor;
using testing::Scratch;
using tests::message_of;
using tests::packed_weight;

struct Mlp : torch::nn::Module {
  Mlp() {
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) { return down->forward(at::tanh(up->forward(x))); }
  torch::nn::Linear up{16, 64}, down{64, 4};
};

// A bfloat16 checkpoint of that module, or its quantised form.
std::filesystem::path checkpoint(const Scratch& scratch, bool is_quantized) {
  const auto tensors = {float_tensor("up.weight", {64, 16}), float_tensor("up.bias", {64}),
                        float_tensor("down.weight", {4, 64}), float_tensor("down.bias", {4})};
  testing::write_checkpoint(scratch / "source", tensors, {{"model_type", "of-my-own"}});
  if (!is_quantized) return scratch / "source";
  convert::quantize(scratch / "source", scratch / "4bit");
  return scratch / "4bit";
}

// A fixed teacher's answers to fixed questions.
struct Lesson {
  Lesson() {
    at::manual_seed(7);
    questions = at::randn({256, 16});
    answers = at::tanh(questions.matmul(at::randn({16, 32}) / 4)).matmul(at::randn({32, 4}) / 6).detach();
  }
  at::Tensor questions, answers;
};

at::Tensor loss_of(Mlp& model, const Lesson& lesson, at::ScalarType type) {
  return (model.forward(lesson.questions.to(type)).to(at::kFloat) - lesson.answers).square().mean();
}

enum class Precision { kFloat32, kAutocast, kBfloat16, kFloat16 };

// The loss in float32 after so many steps from the checkpoint's values.
template <class Optimizer, class Options>
double trained_loss(const std::filesystem::path& path, Precision precision, const Options& options, int steps) {
  static const Lesson lesson;
  Mlp model;
  restore_for_training(model, path);
  const at::ScalarType type = precision == Precision::kBfloat16  ? at::kBFloat16
                              : precision == Precision::kFloat16 ? at::kHalf
                                                                 : at::kFloat;
  model.to(type);
  Optimizer optimizer(model.parameters(), options);
  CHECK(training_problems(model, optimizer).empty() == (type == at::kFloat));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;
    if (precision == Precision::kAutocast) {
      const Autocast autocast;
      loss = loss_of(model, lesson, at::kFloat);
    } else {
      loss = loss_of(model, lesson, type);
    }
    loss.backward();
    optimizer.step();
  }
  const at::NoGradGuard guard;
  model.to(at::kFloat);
  return loss_of(model, lesson, at::kFloat).item<double>();
}

TEST_CASE("optimizer: updates of half-precision parameters are lost", "[contract][optimizer]") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor parameter = at::ones({4}, type).requires_grad_();
    const at::Tensor master = at::ones({4}).requires_grad_();
    torch::optim::SGD optimizer({parameter, master}, torch::optim::SGDOptions(1e-4));
    for (int step = 0; step < 1000; ++step) {
      optimizer.zero_grad();
      (parameter.sum() + master.sum()).backward();
      optimizer.step();
    }
    CHECK(parameter.eq(1).all().item<bool>());  // a thousand steps, and not one arrived
    CHECK(master[0].item<double>() == Approx(0.9).epsilon(1e-3));
  }
  // A second moment of 1e-8 is zero in float16, and so is Adam's epsilon.
  const at::Tensor parameter = at::ones({4}, at::kHalf).requires_grad_();
  torch::optim::Adam adam({parameter}, torch::optim::AdamOptions(1e-3));
  (parameter * 1e-4).sum().backward();
  adam.step();
  CHECK_FALSE(parameter.isfinite().all().item<bool>());
}

TEST_CASE("optimizer: float32 masters under autocast reach float32's loss, bfloat16 parameters do not",
          "[contract][optimizer]") {
  const Scratch scratch;
  const auto path = checkpoint(scratch, true);
  const torch::optim::SGDOptions sgd(0.01);
  const double float32 = trained_loss<torch::optim::SGD>(path, Precision::kFloat32, sgd, 500);
  const double autocast = trained_loss<torch::optim::SGD>(path, Precision::kAutocast, sgd, 500);
  const double bfloat16 = trained_loss<torch::optim::SGD>(path, Precision::kBfloat16, sgd, 500);
  CAPTURE(float32, autocast, bfloat16);
  CHECK(autocast < 1.02 * float32);
  CHECK(bfloat16 > 1.5 * float32);
  const torch::optim::AdamOptions adam(1e-3);
  const double adam32 = trained_loss<torch::optim::Adam>(path, Precision::kFloat32, adam, 300);
  const double adam_autocast = trained_loss<torch::optim::Adam>(path, Precision::kAutocast, adam, 300);
  CAPTURE(adam32, adam_autocast);
  CHECK(adam_autocast < 1.02 * adam32);
  CHECK(std::isnan(trained_loss<torch::optim::Adam>(path, Precision::kFloat16, adam, 300)));
}

TEST_CASE("optimizer: restore_for_training makes float32 masters of any checkpoint, in place",
          "[contract][optimizer]") {
  for (const bool is_quantized : {false, true}) {
    const Scratch scratch;
    const auto path = checkpoint(scratch, is_quantized);
    const State state = load_state(path);
    Mlp model;
    model.to(at::kBFloat16);
    model.eval();
    model.up->weight.requires_grad_(false);
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));  // holds the same tensors
    const RestoreReport report = restore_for_training(model, path);
    CHECK(report.restored.size() == 4);
    CHECK(model.is_training());
    for (const auto& item : model.named_parameters()) {
      INFO(item.key());
      CHECK(item.value().scalar_type() == at::kFloat);
      CHECK(item.value().requires_grad());
      CHECK(item.value().equal(state.at(item.key()).dequantize(at::kFloat)));
    }
    CHECK_NOTHROW(assert_trainable(model, optimizer));
    restore_for_training(model, path, {.frozen = {"up.*"}});
    CHECK_FALSE(model.up->weight.requires_grad());
    CHECK_FALSE(model.up->bias.requires_grad());
    CHECK(model.down->weight.requires_grad());
  }
}

// A linear layer in 4 bits, frozen, and two small matrices that train: y = W x + B A x.
struct Adapted : torch::nn::Module {
  explicit Adapted(const LowBitTensor& weight) : base(std::make_shared<LowBitLinear>(weight)) {
    register_module("base", base);
    a = register_parameter("lora_a", at::randn({4, weight.in_features}) / 8);
    b = register_parameter("lora_b", at::zeros({weight.out_features(), 4}));
  }
  at::Tensor forward(const at::Tensor& x) { return base->forward(x) + at::linear(at::linear(x, a), b); }
  std::shared_ptr<LowBitLinear> base;
  at::Tensor a, b;
};

TEST_CASE("optimizer: an adapter beside packed weights trains, under autocast as without", "[contract][optimizer]") {
  for (const Scheme& scheme : schemes()) {
    std::vector<double> losses;
    double before = 0;
    for (const bool is_narrow : {false, true}) {
      INFO(scheme.name << (is_narrow ? " under autocast" : ""));
      at::manual_seed(11);
      const LowBitTensor weight = packed_weight(scheme, 24, 64, 32);
      const at::Tensor codes = weight.codes.clone();
      Adapted model(weight);
      const at::Tensor x = at::randn({64, 64});
      const at::Tensor wanted =
          at::linear(x, weight.dequantize(at::kFloat) + at::randn({24, 2}).matmul(at::randn({2, 64})) / 8);
      torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(0.02));
      assert_trainable(model, optimizer);
      const auto loss_of = [&] { return (model.forward(x).to(at::kFloat) - wanted).square().mean(); };
      before = loss_of().item<double>();
      for (int step = 0; step < 150; ++step) {
        optimizer.zero_grad();
        at::Tensor loss;
        {
          const std::unique_ptr<Autocast> autocast = is_narrow ? std::make_unique<Autocast>() : nullptr;
          loss = loss_of();
        }
        loss.backward();
        if (step == 1) {
          CHECK(model.a.grad().abs().sum().item<double>() > 0);
          CHECK(model.b.grad().scalar_type() == at::kFloat);
        }
        optimizer.step();
      }
      losses.push_back(loss_of().item<double>());
      CHECK(model.base->weight().codes.equal(codes));
    }
    INFO(scheme.name << ": " << before << " -> " << losses[0] << ", under autocast " << losses[1]);
    CHECK(losses[0] < 0.05 * before);
    CHECK(losses[1] < 0.05 * before);
  }
}

// What assert_trainable says of an optimizer of these parameters; empty: nothing is wrong.
std::string problems(torch::nn::Module& model, const std::vector<at::Tensor>& parameters) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1));
  const std::string message = message_of([&] { assert_trainable(model, optimizer); });
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.empty() == training_problems(model, optimizer).empty());
  return message;
}

TEST_CASE("optimizer: assert_trainable names each parameter whose dtype would not train, and the cure",
          "[contract][optimizer]") {
  Mlp model;
  CHECK(problems(model, model.parameters()).empty());

  Mlp narrow;
  narrow.down->to(at::kBFloat16);
  CHECK_THAT(problems(narrow, narrow.parameters()), Contains("down.weight is bfloat16 [4, 64] on cpu") &&
                                                        Contains("down.bias") && Contains("restore_for_training") &&
                                                        Contains("Autocast"));
  narrow.up->to(at::kHalf);
  CHECK_THAT(problems(narrow, narrow.parameters()), Contains("up.weight is float16") && Contains("(and 1 more)"));
}

TEST_CASE("optimizer: assert_trainable compares the optimizer's parameters with the module's",
          "[contract][optimizer]") {
  Mlp model, other;
  CHECK_THAT(
      problems(model, other.parameters()),
      Contains("parameter 0 of the optimizer's group 0 (float32 [64, 16] on cpu) is not a parameter of the module"));
  CHECK_THAT(problems(model, {model.up->weight, model.up->bias, model.down->weight}),
             Contains("down.bias wants gradients but is not in the optimizer"));
  CHECK_THAT(
      problems(model, {model.up->weight, model.up->bias, model.down->weight, model.down->bias, model.down->bias}),
      Contains("down.bias is in the optimizer twice"));
  CHECK_THAT(problems(model, {}), Contains("the optimizer has no parameters"));

  Mlp frozen;
  frozen.up->weight.requires_grad_(false);
  CHECK_THAT(problems(frozen, frozen.parameters()), Contains("up.weight is in the optimizer but frozen"));
  CHECK(problems(frozen, {frozen.up->bias, frozen.down->weight, frozen.down->bias}).empty());
}

TEST_CASE("optimizer: assert_trainable says one cure once, and names weights that are tied as two tensors",
          "[contract][optimizer]") {
  Mlp narrow;
  narrow.to(at::kBFloat16);
  const std::string said = problems(narrow, narrow.parameters());
  CHECK_THAT(said, Contains("up.weight is bfloat16 [64, 16] on cpu: updates") && Contains(", too") &&
                       Contains("(and 1 more)"));
  CHECK(said.find("Autocast") == said.rfind("Autocast"));

  struct Tied : torch::nn::Module {
    Tied() {
      const at::Tensor weight = at::ones({2});
      register_parameter("embedding", weight);
      register_parameter("head", weight.detach());
    }
  } tied;
  CHECK_THAT(problems(tied, tied.parameters()), Contains("embedding and head are tied, but two tensors"));
}

TEST_CASE("optimizer: assert_trainable names parameters that are nowhere, packed, or of InferenceMode",
          "[contract][optimizer]") {
  struct Split : torch::nn::Module {
    Split() {
      register_parameter("here", at::ones({2}));
      register_parameter("there", at::ones({2}, at::kMeta));
    }
  } split;
  CHECK_THAT(problems(split, split.parameters()),
             Contains("there is on Meta") && Contains("there is on meta but here is on cpu"));

  Adapted adapted(packed_weight(schemes()[0], 24, 64, 32));
  CHECK(problems(adapted, adapted.parameters()).empty());
  CHECK_THAT(problems(adapted, {adapted.a, adapted.b, adapted.base->weight().scales}),
             Contains("the scales of base.weight (sym_int4 g32)") && Contains("packed weight does not train"));
  CHECK_THAT(problems(*adapted.base, {adapted.base->weight().codes}), Contains("the codes of weight (sym_int4 g32)"));

  const c10::InferenceMode guard;
  Mlp inference;
  torch::optim::SGD optimizer(inference.parameters(), torch::optim::SGDOptions(0.1));
  CHECK_THAT(message_of([&] { assert_trainable(inference, optimizer); }), Contains("made under InferenceMode"));
}

TEST_CASE("optimizer: Autocast comes and goes with its scope, nested too", "[contract][optimizer]") {
  const at::Tensor x = at::randn({3, 16}), weight = at::randn({4, 16});
  const auto type = [&] { return at::linear(x, weight).scalar_type(); };
  {
    const Autocast outer(at::kHalf);
    CHECK(type() == at::kHalf);
    {
      const Autocast inner;
      CHECK(type() == at::kBFloat16);
    }
    CHECK(type() == at::kHalf);
  }
  CHECK(type() == at::kFloat);
  CHECK_THAT(message_of([] { const Autocast wide(at::kDouble); }), Contains("not bfloat16 or float16"));
  CHECK(type() == at::kFloat);
}

}  // namespace
}  // namespace halfbyte
