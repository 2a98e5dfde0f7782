// A linear layer whose weight stays packed, for halfbyte's models and for hosts that put it into modules of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <halfbyte/linear.h>
#include <halfbyte/low_bit_tensor.h>

namespace halfbyte {

namespace models {

struct Violation;

// Which dtype the activation is brought to before the product, and which the result has.
struct LinearDtypes {
  std::optional<at::ScalarType> operand = std::nullopt;  // nothing: the activation's own
  std::optional<at::ScalarType> result = std::nullopt;   // nothing: the operand's
  bool promotes = false;  // without an operand: LibTorch's promotion of the activation's and the weight's dtype
  quant::Arithmetic arithmetic = quant::Arithmetic::kFloat;  // of products with packed codes, on the CPU
};

// y = x W^T + b: what packed and dense layers have in common.
class Linear : public torch::nn::Module {
 public:
  Linear(const LinearDtypes& dtypes, const std::optional<at::Tensor>& bias);

  // Shape: (..., in_features) -> (..., out_features) in `result`, or what the dtypes say.
  virtual at::Tensor multiply(const at::Tensor& input, std::optional<at::ScalarType> result = std::nullopt) const = 0;
  at::Tensor forward(const at::Tensor& input) const { return multiply(input); }
  virtual void check(const std::string& name, std::vector<Violation>& violations) const = 0;
  virtual std::int64_t in_features() const = 0;
  virtual std::int64_t out_features() const = 0;
  virtual at::Device device() const = 0;
  // Of the weight; of a packed one, before quantisation.
  virtual at::ScalarType dtype() const = 0;
  // The weight as kernels of the CPU read it, whatever the order of its columns; nothing where it does not lie so
  // (another device, dtype or layout).
  virtual std::optional<quant::WeightMatrix> matrix() const { return std::nullopt; }
  // What low_bit_tensor.h says of one; null: none.
  virtual const at::Tensor* column_order() const noexcept { return nullptr; }
  // What the activation is cast to; nothing: promotion, or as it comes.
  std::optional<at::ScalarType> operand_dtype() const { return dtypes_.operand; }
  quant::Arithmetic arithmetic() const { return dtypes_.arithmetic; }

  // What errors call this module: CausalLM and restore_into give it its place in the tree.
  void set_path(std::string path) { path_ = std::move(path); }
  const std::string& path() const noexcept { return path_; }

  const at::Tensor& bias_or_undefined() const noexcept { return bias_; }

 protected:
  // The activation as the product takes it. Errors: kContract when it is on another device.
  at::Tensor operand(const at::Tensor& input) const;
  std::optional<at::Tensor> bias() const;
  LinearDtypes dtypes_;
  at::Tensor bias_;  // undefined: none
  std::string path_;
};

}  // namespace models

// Owns its codes and scales: they are neither parameters nor buffers, so no dtype policy and no Module::to can cast
// them. By default it takes activations as they come and answers in their dtype, as torch::nn::Linear does; under
// autocast the product is in autocast's dtype. Gradients flow to the activation and to the bias; the weight has none.
// Module::save and torch::save do not know packed weights: keep the checkpoint instead.
class LowBitLinear : public models::Linear {
 public:
  // `bias` is registered as it is, gradient wanted or not. Errors: kInvalidArgument (an empty weight, a bias of another
  // size).
  explicit LowBitLinear(LowBitTensor weight, const std::optional<at::Tensor>& bias = std::nullopt,
                        const models::LinearDtypes& dtypes = {});

  // Shape: (..., in_features) -> (..., out_features). Errors: kContract, kInvalidArgument naming the operand.
  // Not const, so that torch::nn::Sequential takes this module.
  at::Tensor forward(const at::Tensor& input) { return multiply(input); }
  at::Tensor multiply(const at::Tensor& input, std::optional<at::ScalarType> result = std::nullopt) const override;
  void check(const std::string& name, std::vector<models::Violation>& violations) const override;
  std::int64_t in_features() const override { return weight_.in_features; }
  std::int64_t out_features() const override { return weight_.out_features(); }
  at::Device device() const override { return weight_.device(); }
  at::ScalarType dtype() const override { return weight_.dtype; }
  std::optional<quant::WeightMatrix> matrix() const override { return matrix_; }
  const at::Tensor* column_order() const noexcept override {
    return weight_.column_order ? &*weight_.column_order : nullptr;
  }
  const LowBitTensor& weight() const noexcept { return weight_; }
  // Another weight of the same shape, moved to this module's device. Errors: kInvalidArgument.
  void set_weight(const LowBitTensor& weight);

  // A device moves codes and scales; a dtype does not touch them, only the bias.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  void keep(LowBitTensor weight);

  LowBitTensor weight_;
  // Of the weight, which nobody else can replace: passes look at many, and its tensors' own words lie far apart.
  std::optional<quant::WeightMatrix> matrix_;
};

}  // namespace halfbyte
