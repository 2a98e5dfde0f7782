// Adapters made by hand in peft's files, and what they make of a checkpoint's weights, computed plainly.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"
#include "loader/files/tensor_reader.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

inline ordered_json peft_config(std::int64_t rank, double alpha) {
  return {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}};
}

struct TestModule {
  std::string name;
  std::int64_t out_features, in_features, rank;
  bool has_magnitude = false;
};

// Of tests' Llama (llama_tensors()).
inline const TestModule kQuery{"model.layers.0.self_attn.q_proj", 32, 32, 3};
inline const TestModule kDown{"model.layers.0.mlp.down_proj", 32, 64, 3};

inline std::vector<TestTensor> adapter_tensors(const std::vector<TestModule>& modules, Dtype dtype = Dtype::kFloat32) {
  std::vector<TestTensor> out;
  for (const TestModule& one : modules) {
    const std::string above = "base_model.model." + one.name;
    out.push_back(float_tensor(above + ".lora_A.weight", {one.rank, one.in_features}, dtype));
    out.push_back(float_tensor(above + ".lora_B.weight", {one.out_features, one.rank}, dtype));
    if (one.has_magnitude) out.push_back(float_tensor(above + ".lora_magnitude_vector", {one.out_features}, dtype));
  }
  return out;
}

inline void write_adapter(const fs::path& directory, const std::vector<TestTensor>& tensors,
                          const ordered_json& config) {
  write_text(directory / "adapter_config.json", config.dump());
  write_text(directory / "adapter_model.safetensors", safetensors(tensors));
}

using Values = std::vector<double>;

inline Values doubles_of(const files::Checkpoint& checkpoint, const std::string& name) {
  files::TensorReader reader(checkpoint, *checkpoint.manifest.find(name));
  std::vector<float> out(static_cast<std::size_t>(reader.size()));
  reader.read(0, out);
  return {out.begin(), out.end()};
}

// W + scaling * B A, in double; with a magnitude its rows scaled to that.
inline Values adapted(const fs::path& adapter, const TestModule& module, Values w, double scaling) {
  const files::Checkpoint file = files::open_checkpoint(adapter / "adapter_model.safetensors");
  const std::string above = "base_model.model." + module.name;
  const Values a = doubles_of(file, above + ".lora_A.weight"), b = doubles_of(file, above + ".lora_B.weight");
  const auto rank = static_cast<std::size_t>(module.rank), in = static_cast<std::size_t>(module.in_features);
  for (std::size_t row = 0; row < w.size() / in; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < in; ++i) {
      for (std::size_t r = 0; r < rank; ++r) w[row * in + i] += scaling * b[row * rank + r] * a[r * in + i];
      squares += w[row * in + i] * w[row * in + i];
    }
    if (!module.has_magnitude) continue;
    const double factor = doubles_of(file, above + ".lora_magnitude_vector")[row] / std::sqrt(squares);
    for (std::size_t i = 0; i < in; ++i) w[row * in + i] *= factor;
  }
  return w;
}

}  // namespace halfbyte::testing
