// Training of a host's own torch::nn::Module that was filled from a checkpoint: float32 master parameters, products
// under autocast, and a check that refuses what cannot train before it silently does not.
//
// Why: an optimizer that updates bfloat16 or float16 parameters in place loses every update smaller than half a unit in
// the last place (1/256 and 1/2048 of the value), and float16 moments underflow. So the parameters are float32 and the
// products are narrow, not the other way round.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/restore_into.h>

namespace torch::optim {
class Optimizer;
}

namespace halfbyte {

class Lora;

struct TrainingOptions {
  // How names map and what must fit, as for restore_into. `dtype` is of no account: masters are float32.
  RestoreOptions restore = {};
  // Patterns of parameters that do not train: requires_grad is turned off for them. Packed weights never train.
  std::vector<std::string> frozen = {};
};

// Fills the module as restore_into does, but whatever dtypes the checkpoint and the module have, every floating
// parameter and buffer becomes float32, every parameter that is not frozen wants gradients, and the module is in train
// mode. A LowBitLinear keeps its weight packed: the frozen base of an adapter. Make the optimizer afterwards, or
// before: the parameters stay the same tensors. Errors: as restore_into.
RestoreReport restore_for_training(torch::nn::Module& module, const std::filesystem::path& checkpoint,
                                   const TrainingOptions& options = {});

// What keeps this module, and adapters beside it where there are some, from being trained by this optimizer, one line
// each, named: parameters in half precision, frozen, or not of the module among the optimizer's; trainable ones that it
// lacks or has twice, under one name or two; packed weights; parameters on different devices, on Meta, or made under
// InferenceMode. Empty: nothing.
std::vector<std::string> training_problems(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                                           const Lora* adapters = nullptr);

// Call it once, before the first step. Errors: kContract naming the first few problems, how many more there are, and
// what to do.
void assert_trainable(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                      const Lora* adapters = nullptr);

// While it lives, LibTorch's operators and halfbyte's on `device` multiply in `dtype` on this thread, and what was in
// force before comes back when it goes. Hold it in the forward pass and the loss, not in backward() and step().
// bfloat16 needs no loss scaling; float16 gradients underflow without, and LibTorch's C++ API has no GradScaler.
// Errors: kInvalidArgument unless bfloat16 or float16.
class Autocast {
 public:
  explicit Autocast(at::ScalarType dtype = at::kBFloat16, at::DeviceType device = at::kCPU);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType previous_;
};

}  // namespace halfbyte
