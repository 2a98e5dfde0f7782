// Linear layers whose weight stays as it was loaded: packed codes, or dense rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <torch/nn/module.h>

#include <halfbyte/scheme.h>

#include "models/modules/compute.h"

namespace halfbyte::models {

// A weight matrix in 4 or 8 bits. Shapes: codes int32 (out_features, words), scales (out_features, groups).
struct LowBitTensor {
  at::Tensor codes;
  at::Tensor scales;
  const Scheme* scheme = nullptr;
  std::int64_t in_features = 0;
  std::int64_t group_size = 0;
};

struct LinearWeights {
  std::variant<at::Tensor, LowBitTensor> weight;
  std::optional<at::Tensor> bias;
};

// y = x W^T + b. The activation is cast to the operand dtype; the result has the stream's.
class Linear : public torch::nn::Module {
 public:
  Linear(const Compute& compute, const std::optional<at::Tensor>& bias);

  // Shape: (..., in_features) -> (..., out_features).
  virtual at::Tensor forward(const at::Tensor& input, std::optional<at::ScalarType> out_dtype = std::nullopt) const = 0;
  virtual void check(const std::string& name, std::vector<Violation>& violations) const = 0;
  virtual std::int64_t in_features() const = 0;
  virtual std::int64_t out_features() const = 0;
  virtual at::Device device() const = 0;
  at::ScalarType operand() const noexcept { return compute_.operand; }

 protected:
  void check_input_device(const at::Tensor& input) const;
  Compute compute_;
  at::Tensor bias_;  // undefined: none
};

// Owns its codes and scales: they are neither parameters nor buffers, so no dtype policy and no Module::to can cast
// them.
class LowBitLinear : public Linear {
 public:
  LowBitLinear(LowBitTensor weight, const std::optional<at::Tensor>& bias, const Compute& compute);

  at::Tensor forward(const at::Tensor& input, std::optional<at::ScalarType> out_dtype = std::nullopt) const override;
  void check(const std::string& name, std::vector<Violation>& violations) const override;
  std::int64_t in_features() const override { return weight_.in_features; }
  std::int64_t out_features() const override { return weight_.codes.size(0); }
  at::Device device() const override { return weight_.codes.device(); }
  const LowBitTensor& weight() const noexcept { return weight_; }

  // A device moves codes and scales; a dtype does not touch them.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  void move_weight(torch::Device device, bool non_blocking);
  LowBitTensor weight_;
};

class DenseLinear : public Linear {
 public:
  DenseLinear(at::Tensor weight, const std::optional<at::Tensor>& bias, const Compute& compute);

  at::Tensor forward(const at::Tensor& input, std::optional<at::ScalarType> out_dtype = std::nullopt) const override;
  void check(const std::string& name, std::vector<Violation>& violations) const override;
  std::int64_t in_features() const override { return weight_.size(1); }
  std::int64_t out_features() const override { return weight_.size(0); }
  at::Device device() const override { return weight_.device(); }

 private:
  at::Tensor weight_;  // the registered parameter
};

std::shared_ptr<Linear> make_linear(LinearWeights weights, const Compute& compute);

}  // namespace halfbyte::models
