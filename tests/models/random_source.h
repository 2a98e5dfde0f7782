// A model of random weights, for tests of modules that need no checkpoint: every tensor is asked for by its name.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include "models/architectures/architecture.h"
#include "models/modules/tensor_source.h"
#include "tests/catch.h"

namespace halfbyte::tests {

// The same values for the same configuration, whatever is asked for first.
class RandomSource : public models::TensorSource {
 public:
  explicit RandomSource(const models::ModelConfig& config) : expected_(models::Architecture::expected(config)) {}

  models::LinearWeights linear(const std::string& module, bool has_bias) override {
    models::LinearWeights out{parameter(module + ".weight"), std::nullopt};
    if (has_bias) out.bias = parameter(module + ".bias");
    return out;
  }
  models::LinearWeights embedding(const std::string& module) override { return linear(module, false); }
  models::LinearWeights stacked(const std::string& name, std::int64_t index, bool) override {
    return {parameter(name).select(0, index), std::nullopt};
  }
  at::Tensor parameter(const std::string& name) override {
    const auto found = std::ranges::find(expected_, name, &models::ExpectedTensor::name);
    INFO(name);
    REQUIRE(found != expected_.end());
    if (std::ranges::find(asked, name) == asked.end()) asked.push_back(name);
    const auto seed = static_cast<std::uint64_t>(found - expected_.begin());
    const at::Tensor values = at::randn(found->shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
    return found->role == models::Role::kNorm ? values.mul(0.1).add(1) : values.mul(0.15);
  }
  at::ScalarType derived_buffer_dtype(const std::string& name) override {
    buffers.push_back(name);
    return at::kFloat;
  }

  std::vector<std::string> asked;  // each once
  std::vector<std::string> buffers;

 private:
  std::vector<models::ExpectedTensor> expected_;
};

}  // namespace halfbyte::tests
