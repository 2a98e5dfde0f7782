// restore CKPT: a host with a module of its own, filled from a checkpoint, and the same one kept in 4 bits.
#include <cstdio>
#include <memory>
#include <string>

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <halfbyte/load_state.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/restore_into.h>

namespace {

const std::string kPrefix = "model.layers.0.mlp.";

// Dense: torch::nn::Linear, filled by restore_into.
struct Mlp : torch::nn::Module {
  Mlp(std::int64_t hidden, std::int64_t intermediate)
      : gate(torch::nn::LinearOptions(hidden, intermediate).bias(false)),
        up(torch::nn::LinearOptions(hidden, intermediate).bias(false)),
        down(torch::nn::LinearOptions(intermediate, hidden).bias(false)) {
    register_module("gate_proj", gate);
    register_module("up_proj", up);
    register_module("down_proj", down);
  }
  at::Tensor forward(const at::Tensor& x) { return down->forward(at::silu(gate->forward(x)) * up->forward(x)); }
  torch::nn::Linear gate, up, down;
};

// Packed: the same layers straight from the state, 4 bits in memory.
struct PackedMlp : torch::nn::Module {
  explicit PackedMlp(const halfbyte::State& state) {
    const auto linear = [&](const std::string& name) {
      return register_module(name,
                             std::make_shared<halfbyte::LowBitLinear>(state.at(kPrefix + name + ".weight").low_bit()));
    };
    gate = linear("gate_proj");
    up = linear("up_proj");
    down = linear("down_proj");
  }
  at::Tensor forward(const at::Tensor& x) { return down->forward(at::silu(gate->forward(x)) * up->forward(x)); }
  std::shared_ptr<halfbyte::LowBitLinear> gate, up, down;
};

// Names below this layer's MLP, without what stands before; nothing for all others.
std::string name_in_mlp(const std::string& name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : std::string();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const halfbyte::State state = halfbyte::load_state(argv[1]);
    PackedMlp packed(state);
    Mlp dense(packed.gate->in_features(), packed.gate->out_features());
    const auto report = halfbyte::restore_into(dense, argv[1], {.rename = name_in_mlp});
    for (const auto& tensor : report.restored) {
      std::printf("%s: %s -> %s\n", tensor.name.c_str(), tensor.stored.c_str(), tensor.loaded.c_str());
    }
    const at::Tensor x = at::ones({4, packed.gate->in_features()});
    const at::Tensor difference = (dense.forward(x) - packed.forward(x)).abs().max() / dense.forward(x).abs().max();
    std::printf("largest relative difference %g\n", difference.item<double>());
    return report.restored.size() == 3 && difference.item<double>() < 1e-5 ? 0 : 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
