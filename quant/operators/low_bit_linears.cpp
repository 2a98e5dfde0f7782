// Products of one input with several packed weights: queries, keys and values, or an MLP's gate and up.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <halfbyte/linear.h>

#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/prepare.h"
#include "quant/operators/weight_matrix.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators {
namespace {

constexpr const char* kLowBitLinears = "low_bit_linears";

void check_biases(std::span<const PackedWeight> weights, std::span<const OptionalTensor> biases) {
  if (!biases.empty() && biases.size() != weights.size())
    refuse(kLowBitLinears,
           std::to_string(biases.size()) + " biases for " + std::to_string(weights.size()) + " weights");
}

OptionalTensor bias_at(std::span<const OptionalTensor> biases, std::size_t index) {
  return biases.empty() ? std::nullopt : biases[index];
}

bool want_gradients(const at::Tensor& input, std::span<const PackedWeight> weights,
                    std::span<const OptionalTensor> biases) {
  bool out = input.requires_grad();
  for (const PackedWeight& weight : weights) out = out || weight.scales.requires_grad();
  for (const OptionalTensor& bias : biases) out = out || (bias && bias->defined() && bias->requires_grad());
  return out;
}

// One by one.
template <class Multiply>
std::vector<at::Tensor> each_of(std::span<const PackedWeight> weights, std::span<const OptionalTensor> biases,
                                const Multiply& multiply) {
  check_biases(weights, biases);
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < weights.size(); ++i) out.push_back(multiply(weights[i], bias_at(biases, i)));
  return out;
}

}  // namespace

std::vector<at::Tensor> cpu::low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                             std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                             std::string_view arithmetic) {
  const quant::Arithmetic kind = check_arithmetic(kLowBitLinears, arithmetic);
  const at::Tensor rows = input.contiguous();
  std::vector<PackedOperand> operands;  // hold the memory
  operands.reserve(weights.size());
  std::vector<quant::Product> products;
  std::vector<at::Tensor> kept;
  const auto add = [&](const PackedWeight& weight, const OptionalTensor& bias) {
    check_packed_input(kLowBitLinears, input, weight);
    operands.push_back(check_packed(kLowBitLinears, weight, input.size(-1)));
    check_same_device(kLowBitLinears, "codes", weight.codes, "input", input);
    PreparedProduct one = prepare(kLowBitLinears, packed_matrix(operands.back()), rows, bias, out_dtype, kind);
    if (one.has_work()) products.push_back(one.product);
    kept.push_back(std::move(one.bias));
    return one.result;
  };
  std::vector<at::Tensor> results = each_of(weights, biases, add);
  const quant::AmongOpenMp among_openmp;
  if (!products.empty()) quant::linear(products);
  return results;
}

std::vector<at::Tensor> composite::low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                                   std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                                   std::string_view arithmetic) {
  return each_of(weights, biases, [&](const PackedWeight& weight, const OptionalTensor& bias) {
    return low_bit_linear(input, weight, bias, out_dtype, arithmetic);
  });
}

// Where a gradient is wanted, one by one.
std::vector<at::Tensor> autograd::low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                                  std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                                  std::string_view arithmetic) {
  if (at::GradMode::is_enabled() && want_gradients(input, weights, biases)) {
    return each_of(weights, biases, [&](const PackedWeight& weight, const OptionalTensor& bias) {
      return low_bit_linear(input, weight, bias, out_dtype, arithmetic);
    });
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return operators::low_bit_linears(input, weights, biases, out_dtype, check_arithmetic(kLowBitLinears, arithmetic));
}

}  // namespace halfbyte::operators
