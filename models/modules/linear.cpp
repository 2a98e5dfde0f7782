#include "models/modules/linear.h"

#include <algorithm>

#include <c10/core/ScalarType.h>

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

#include "models/modules/between_looks.h"
#include "models/modules/overflow.h"
#include "models/modules/product_cost.h"
#include "models/modules/tap.h"
#include "quant/operators/translate.h"
#include "quant/operators/weight_matrix.h"

namespace halfbyte::models {

DenseLinear::DenseLinear(at::Tensor weight, const std::optional<at::Tensor>& bias, const LinearDtypes& dtypes)
    : Linear(dtypes, bias) {
  weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
}

at::Tensor DenseLinear::multiply(const at::Tensor& input, std::optional<at::ScalarType> result) const {
  const auto work = WorkScope::module_product([&] { return product_cost(*this, input); });
  try {
    Tap::given(*this, input);
    const at::Tensor x = operand(input);
    const auto product = [&](const at::Tensor& rows) {
      return operators::dense_linear(rows, weight_, bias(), result ? result : dtypes_.result);
    };
    return Tap::product(*this, input, watched(*this, input, x, between_looks(x, out_features(), product)));
  } catch (...) {
    rethrow_named(path_);
  }
}

std::optional<quant::WeightMatrix> DenseLinear::matrix() const { return operators::plain_dense_matrix(weight_); }

void DenseLinear::check(const std::string& name, std::vector<Violation>& violations) const {
  if (!dtypes_.operand || weight_.scalar_type() == *dtypes_.operand) return;
  violations.push_back({name, "weight is " + std::string(c10::toString(weight_.scalar_type())) +
                                  " but the activation will be " + c10::toString(*dtypes_.operand) +
                                  "; load with a dtype policy instead of casting modules"});
}

std::shared_ptr<Linear> make_linear(LinearWeights weights, const Compute& compute) {
  LinearDtypes dtypes = compute.linear();
  if (weights.policy) {
    dtypes.operand = Compute(*weights.policy).operand;
    // Who wants this product's activation in float32, or as it comes, does not want it in 8 bits.
    if (!dtypes.operand || *dtypes.operand == at::kFloat) dtypes.arithmetic = quant::Arithmetic::kFloat;
  }
  if (auto* packed = std::get_if<LowBitTensor>(&weights.weight)) {
    return std::make_shared<LowBitLinear>(std::move(*packed), weights.bias, dtypes);
  }
  return std::make_shared<DenseLinear>(std::get<at::Tensor>(weights.weight), weights.bias, dtypes);
}

at::Tensor shared_operand(const at::Tensor& input, std::span<const std::shared_ptr<Linear>> consumers) {
  const auto wanted = consumers.front()->operand_dtype();
  const bool is_agreed =
      std::ranges::all_of(consumers, [&](const auto& linear) { return linear->operand_dtype() == wanted; });
  return wanted && is_agreed ? input.to(*wanted) : input;
}

std::optional<at::ScalarType> activation_dtype(const Compute& compute, const Linear& consumer) {
  if (!compute.stream || !consumer.operand_dtype()) return compute.stream;
  return c10::promoteTypes(*compute.stream, *consumer.operand_dtype());
}

}  // namespace halfbyte::models
