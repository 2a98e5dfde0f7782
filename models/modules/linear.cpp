#include "models/modules/linear.h"

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

namespace halfbyte::models {

DenseLinear::DenseLinear(at::Tensor weight, const std::optional<at::Tensor>& bias, const LinearDtypes& dtypes)
    : Linear(dtypes, bias) {
  weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
  // A weight that was kept in float32 against the policy is multiplied in float32.
  if (dtypes_.operand && weight_.scalar_type() == at::kFloat) dtypes_.operand = at::kFloat;
}

at::Tensor DenseLinear::multiply(const at::Tensor& input, std::optional<at::ScalarType> result) const {
  return operators::dense_linear(operand(input), weight_, bias(), result ? result : dtypes_.result);
}

void DenseLinear::check(const std::string& name, std::vector<Violation>& violations) const {
  if (!dtypes_.operand || weight_.scalar_type() == *dtypes_.operand) return;
  violations.push_back({name, "weight is " + std::string(c10::toString(weight_.scalar_type())) +
                                  " but the activation will be " + c10::toString(*dtypes_.operand) +
                                  "; load with a dtype policy instead of casting modules"});
}

std::shared_ptr<Linear> make_linear(LinearWeights weights, const Compute& compute) {
  if (auto* packed = std::get_if<LowBitTensor>(&weights.weight)) {
    return std::make_shared<LowBitLinear>(std::move(*packed), weights.bias, compute.linear());
  }
  return std::make_shared<DenseLinear>(std::get<at::Tensor>(weights.weight), weights.bias, compute.linear());
}

}  // namespace halfbyte::models
