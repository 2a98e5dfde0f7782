#include "models/modules/linear.h"

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

namespace halfbyte::models {

Linear::Linear(const Compute& compute, const std::optional<at::Tensor>& bias) : compute_(compute) {
  if (bias) bias_ = register_parameter("bias", *bias, /*requires_grad=*/false);
}

void Linear::check_input_device(const at::Tensor& input) const {
  if (input.device() == device()) return;
  throw Error(ErrorCode::kContract, "the input is on " + input.device().str() + " but the weight is on " +
                                        device().str() + "; move the model or the input with .to()");
}

LowBitLinear::LowBitLinear(LowBitTensor weight, const std::optional<at::Tensor>& bias, const Compute& compute)
    : Linear(compute, bias), weight_(std::move(weight)) {}

at::Tensor LowBitLinear::forward(const at::Tensor& input, std::optional<at::ScalarType> out_dtype) const {
  check_input_device(input);
  const auto bias = bias_.defined() ? std::optional(bias_) : std::nullopt;
  return operators::low_bit_linear(input.to(compute_.operand), weight_.codes, weight_.scales, bias,
                                   weight_.scheme->name, weight_.group_size, out_dtype.value_or(compute_.stream));
}

void LowBitLinear::check(const std::string& name, std::vector<Violation>& violations) const {
  if (weight_.codes.scalar_type() != at::kInt) {
    violations.push_back({name, "codes are " + std::string(c10::toString(weight_.codes.scalar_type())) +
                                    "; packed codes are int32 and must not be cast: load the checkpoint again"});
  }
  if (weight_.scales.device() != weight_.codes.device()) {
    violations.push_back({name, "scales are on " + weight_.scales.device().str() + ", codes on " +
                                    weight_.codes.device().str() + "; move the module as a whole with .to()"});
  }
}

void LowBitLinear::move_weight(torch::Device device, bool non_blocking) {
  weight_.codes = weight_.codes.to(device, non_blocking);
  weight_.scales = weight_.scales.to(device, non_blocking);
}

void LowBitLinear::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  move_weight(device, non_blocking);
  torch::nn::Module::to(device, dtype, non_blocking);
}

void LowBitLinear::to(torch::Dtype dtype, bool non_blocking) { torch::nn::Module::to(dtype, non_blocking); }

void LowBitLinear::to(torch::Device device, bool non_blocking) {
  move_weight(device, non_blocking);
  torch::nn::Module::to(device, non_blocking);
}

DenseLinear::DenseLinear(at::Tensor weight, const std::optional<at::Tensor>& bias, const Compute& compute)
    : Linear(compute, bias) {
  weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
  // A weight that was kept in float32 against the policy is multiplied in float32.
  if (weight_.scalar_type() == at::kFloat) compute_.operand = at::kFloat;
}

at::Tensor DenseLinear::forward(const at::Tensor& input, std::optional<at::ScalarType> out_dtype) const {
  check_input_device(input);
  const auto bias = bias_.defined() ? std::optional(bias_) : std::nullopt;
  return operators::dense_linear(input.to(compute_.operand), weight_, bias, out_dtype.value_or(compute_.stream));
}

void DenseLinear::check(const std::string& name, std::vector<Violation>& violations) const {
  if (weight_.scalar_type() == compute_.operand) return;
  violations.push_back({name, "weight is " + std::string(c10::toString(weight_.scalar_type())) +
                                  " but the activation will be " + c10::toString(compute_.operand) +
                                  "; load with a dtype policy instead of casting modules"});
}

std::shared_ptr<Linear> make_linear(LinearWeights weights, const Compute& compute) {
  if (auto* packed = std::get_if<LowBitTensor>(&weights.weight)) {
    return std::make_shared<LowBitLinear>(std::move(*packed), weights.bias, compute);
  }
  return std::make_shared<DenseLinear>(std::get<at::Tensor>(weights.weight), weights.bias, compute);
}

}  // namespace halfbyte::models
