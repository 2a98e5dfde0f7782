// train CKPT: an adapter beside a layer that stays in 4 bits, float32 masters, products in bfloat16; a module filled
// for training; and adapters beside a whole model, by LibTorch's optimizer.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/train.h>

namespace {

const std::string kLayer = "model.layers.0.mlp.up_proj.";

struct Adapted : torch::nn::Module {
  explicit Adapted(const halfbyte::LowBitTensor& weight, std::int64_t rank = 4)
      : base(register_module("base", std::make_shared<halfbyte::LowBitLinear>(weight))) {
    a = register_parameter("lora_a", torch::randn({rank, weight.in_features}) / 16);
    b = register_parameter("lora_b", torch::zeros({weight.out_features(), rank}));
  }
  at::Tensor forward(const at::Tensor& x) { return base->forward(x) + torch::linear(torch::linear(x, a), b); }
  std::shared_ptr<halfbyte::LowBitLinear> base;
  at::Tensor a, b;
};

// The last step's loss.
double train(Adapted& model, const at::Tensor& x, const at::Tensor& wanted, int steps) {
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(0.02));
  halfbyte::assert_trainable(model, optimizer);
  double last = 0;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const halfbyte::Autocast autocast(torch::kBFloat16);
      loss = (model.forward(x).to(torch::kFloat) - wanted).square().mean();
    }
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
  }
  return last;
}

// Whether a model learns what comes after what.
bool learns(const char* checkpoint) {
  const halfbyte::Model model = halfbyte::load_low_bit(checkpoint, {.compute = halfbyte::ComputeMode::kFloat});
  const halfbyte::Lora lora(model.module(), {.rank = 4});
  torch::optim::AdamW optimizer(lora.parameters(), torch::optim::AdamWOptions(0.02));
  const std::vector<halfbyte::training::Sequence> texts = {
      {.tokens = {5, 6, 7, 5, 6, 7, 5, 6}, .labels = {6, 7, 5, 6, 7, 5, 6, 7}, .lengths = {8}}};
  const std::vector<double> losses =
      halfbyte::train(model.module(), optimizer, texts, {.steps = 10, .adapters = &lora});
  std::printf("a model's loss %g -> %g\n", losses.front(), losses.back());
  return losses.back() < losses.front() / 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    torch::manual_seed(1);
    const halfbyte::State state = halfbyte::load_state(argv[1]);
    Adapted model(state.at(kLayer + "weight").low_bit());
    const at::Tensor x = torch::randn({8, model.base->in_features()});
    // A task that an adapter of rank 4 can learn: the layer's own answers and something of rank 1.
    const at::Tensor wanted =
        model.base->forward(x) + x.narrow(1, 0, 1) * torch::randn({1, model.base->out_features()});
    const double first = train(model, x, wanted, 1);
    const double last = train(model, x, wanted, 100);
    std::printf("loss %g -> %g\n", first, last);

    torch::nn::Linear dense(
        torch::nn::LinearOptions(model.base->in_features(), model.base->out_features()).bias(false));
    dense->to(torch::kBFloat16);
    halfbyte::TrainingOptions options;
    options.restore.rename = [](const std::string& name) { return name == kLayer + "weight" ? "weight" : ""; };
    halfbyte::restore_for_training(*dense, argv[1], options);
    return last < first / 4 && dense->weight.scalar_type() == torch::kFloat && learns(argv[1]) ? 0 : 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
