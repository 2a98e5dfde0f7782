// RMSNorm as transformers computes it: what is normalised is rounded to the input's dtype before it meets the weight.
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <c10/util/accumulate.h>

#include <halfbyte/error.h>

#include "quant/activations.h"
#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/torch_dtype.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators {
namespace {

constexpr const char* kRmsNorm = "rms_norm";

void check_norm(const at::Tensor& input, const at::Tensor& weight) {
  check_floating(kRmsNorm, "input", input);
  check_floating(kRmsNorm, "weight", weight);
  if (weight.dim() != 1 || weight.size(0) < 1)
    throw Error(ErrorCode::kContract,
                std::string(kRmsNorm) + ": weight has shape " + c10::str(weight.sizes()) + ", not (size)");
  check_input(kRmsNorm, input, weight.size(0));
  check_same_device(kRmsNorm, "weight", weight, "input", input);
}

}  // namespace

at::Tensor cpu::rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  check_norm(input, weight);
  const std::int64_t size = weight.size(0), rows = c10::multiply_integers(input.sizes()) / size;
  const at::Tensor values = input.to(at::kFloat, false, true).contiguous();  // a copy, which may be written to
  at::Tensor normalised = at::empty_like(values, values.options().dtype(input.scalar_type()));
  static thread_local std::vector<float> ones;
  if (ones.size() < static_cast<std::size_t>(size)) ones.resize(static_cast<std::size_t>(size), 1.0f);
  quant::ResidualNorm norm{};
  norm.rows = rows;
  norm.size = size;
  norm.stream = values.mutable_data_ptr<float>();
  norm.base = norm.stream;
  norm.norm.weight = reinterpret_cast<const std::byte*>(ones.data());
  norm.norm.epsilon = static_cast<float>(epsilon);
  norm.output = static_cast<std::byte*>(normalised.mutable_data_ptr());
  norm.output_dtype = check_floating(kRmsNorm, "input", normalised);
  const quant::AmongOpenMp among_openmp;
  if (rows > 0) quant::residual_norm(norm);
  return at::mul(weight, normalised);
}

at::Tensor composite::rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  check_norm(input, weight);
  const at::Tensor values = input.to(at::kFloat);
  const at::Tensor inverse = at::rsqrt(values.pow(2).mean(-1, true).add(epsilon));
  return at::mul(weight, at::mul(values, inverse).to(input.scalar_type()));
}

// Where a gradient is wanted, the composite, which has one.
at::Tensor autograd::rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  if (at::GradMode::is_enabled() && (input.requires_grad() || weight.requires_grad()))
    return composite::rms_norm(input, weight, epsilon);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return operators::rms_norm(input, weight, epsilon);
}

}  // namespace halfbyte::operators
