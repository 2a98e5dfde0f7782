#include <halfbyte/low_bit_linear.h>

#include <algorithm>
#include <span>

#include <c10/core/ScalarType.h>

#include <halfbyte/error.h>

#include "models/modules/between_looks.h"
#include "models/modules/compute.h"
#include "models/modules/overflow.h"
#include "models/modules/product_cost.h"
#include "models/modules/tap.h"
#include "quant/operators/translate.h"
#include "quant/operators/weight_matrix.h"

namespace halfbyte {
namespace models {

Linear::Linear(const LinearDtypes& dtypes, const std::optional<at::Tensor>& bias) : dtypes_(dtypes) {
  if (bias && bias->defined()) bias_ = register_parameter("bias", *bias, bias->requires_grad());
}

std::optional<at::Tensor> Linear::bias() const { return bias_.defined() ? std::optional(bias_) : std::nullopt; }

at::Tensor Linear::operand(const at::Tensor& input) const {
  if (!input.defined()) throw Error(ErrorCode::kInvalidArgument, "the input is an undefined tensor");
  if (input.device() != device()) {
    throw Error(ErrorCode::kContract, "the input is on " + input.device().str() + " but the weight is on " +
                                          device().str() + "; move the model or the input with .to()");
  }
  if (dtypes_.operand) return input.to(*dtypes_.operand);
  return dtypes_.promotes ? input.to(c10::promoteTypes(input.scalar_type(), dtype())) : input;
}

}  // namespace models

namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "LowBitLinear: " + problem);
}

std::string shape_text(const LowBitTensor& weight) {
  return std::string("[") + std::to_string(weight.out_features()) + ", " + std::to_string(weight.in_features) + "]";
}

// Kernels read the input's columns by it.
void check_order(const at::Tensor& order, std::int64_t columns) {
  if (order.scalar_type() != at::kLong) refuse(std::string("a column order of ") + c10::toString(order.scalar_type()));
  if (!order.is_cpu()) return;
  const at::Tensor plain = order.contiguous();
  const auto values = std::span(plain.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(columns));
  const auto bad = std::ranges::find_if(values, [&](std::int64_t column) { return column < 0 || column >= columns; });
  if (bad != values.end())
    refuse("a column order that names column " + std::to_string(*bad) + " of " + std::to_string(columns));
}

void check_weight(const LowBitTensor& weight, const std::optional<at::Tensor>& bias) {
  if (!weight.scheme || !weight.codes.defined() || weight.codes.dim() != 2) {
    refuse("the weight has no packed codes; take it from load_state");
  }
  if (weight.column_order && (weight.column_order->dim() != 1 || weight.column_order->size(0) != weight.in_features)) {
    refuse("a column order of " + std::to_string(weight.column_order->numel()) + " for a weight of shape " +
           shape_text(weight));
  }
  if (weight.column_order) check_order(*weight.column_order, weight.in_features);
  if (!bias || !bias->defined() || (bias->dim() == 1 && bias->size(0) == weight.out_features())) return;
  refuse("a bias of " + std::to_string(bias->numel()) + " values for a weight of shape " + shape_text(weight));
}

}  // namespace

LowBitLinear::LowBitLinear(LowBitTensor weight, const std::optional<at::Tensor>& bias,
                           const models::LinearDtypes& dtypes)
    : Linear((check_weight(weight, bias), dtypes), bias) {
  keep(std::move(weight));
}

void LowBitLinear::keep(LowBitTensor weight) {
  weight_ = std::move(weight);
  matrix_ =
      operators::plain_packed_matrix({weight_.scheme, weight_.out_features(), weight_.in_features, weight_.packed()});
}

at::Tensor LowBitLinear::multiply(const at::Tensor& input, std::optional<at::ScalarType> result) const {
  const auto work = models::WorkScope::module_product([&] { return models::product_cost(*this, input); });
  try {
    models::Tap::given(*this, input);
    const at::Tensor x = operand(input);
    const auto type = result ? result : dtypes_.result;
    const auto product = [&](const at::Tensor& rows) {
      return weight_.multiply(rows, bias(), type, dtypes_.arithmetic);
    };
    at::Tensor y = models::watched(*this, input, x, models::between_looks(x, out_features(), product));
    return models::Tap::product(*this, input, std::move(y));
  } catch (...) {
    rethrow_named(path_);
  }
}

void LowBitLinear::check(const std::string& name, std::vector<models::Violation>& violations) const {
  if (weight_.codes.scalar_type() != at::kInt) {
    violations.push_back({name, "codes are " + std::string(c10::toString(weight_.codes.scalar_type())) +
                                    "; packed codes are int32 and must not be cast: load the checkpoint again"});
  }
  if (weight_.scales.device() != weight_.codes.device()) {
    violations.push_back({name, "scales are on " + weight_.scales.device().str() + ", codes on " +
                                    weight_.codes.device().str() + "; move the module as a whole with .to()"});
  }
}

void LowBitLinear::set_weight(const LowBitTensor& weight) {
  check_weight(weight, bias());
  if (weight.out_features() != out_features() || weight.in_features != in_features()) {
    refuse("a weight of shape " + shape_text(weight) + " cannot replace one of " + shape_text(weight_));
  }
  keep(weight.to(device()));
}

void LowBitLinear::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  keep(weight_.to(device, non_blocking));
  torch::nn::Module::to(device, dtype, non_blocking);
}

void LowBitLinear::to(torch::Dtype dtype, bool non_blocking) { torch::nn::Module::to(dtype, non_blocking); }

void LowBitLinear::to(torch::Device device, bool non_blocking) {
  keep(weight_.to(device, non_blocking));
  torch::nn::Module::to(device, non_blocking);
}

void LowBitLinear::pretty_print(std::ostream& stream) const {
  stream << "halfbyte::LowBitLinear(in_features=" << in_features() << ", out_features=" << out_features() << ", "
         << weight_.description() << " of " << c10::toString(dtype())
         << ", bias=" << (bias_.defined() ? "true" : "false") << ")";
}

}  // namespace halfbyte
