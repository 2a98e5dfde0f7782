// RMSNorm as transformers computes it: what is normalised is rounded to the input's dtype before it meets the weight.
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include "quant/norm_rows.h"
#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators {
namespace {

constexpr const char* kRmsNorm = "rms_norm";

void check_norm(const at::Tensor& input, const at::Tensor& weight) {
  check_floating(kRmsNorm, "input", input);
  check_floating(kRmsNorm, "weight", weight);
  if (weight.dim() != 1 || weight.size(0) < 1)
    refuse(kRmsNorm, "weight has shape " + c10::str(weight.sizes()) + ", not (size)");
  check_input(kRmsNorm, input, weight.size(0));
  check_same_device(kRmsNorm, "weight", weight, "input", input);
}

}  // namespace

at::Tensor cpu::rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  check_norm(input, weight);
  const at::Tensor x = input.contiguous(), factors = weight.contiguous();
  const at::ScalarType type = c10::promoteTypes(input.scalar_type(), weight.scalar_type());
  at::Tensor result = at::empty(input.sizes(), input.options().dtype(type));
  const std::int64_t size = weight.size(0);
  const quant::AmongOpenMp among_openmp;
  quant::norm_rows({c10::multiply_integers(input.sizes()) / size,
                    size,
                    {bytes_of(x), check_floating(kRmsNorm, "input", x)},
                    {{bytes_of(factors), check_floating(kRmsNorm, "weight", factors)}, 0.0f},
                    static_cast<float>(epsilon),
                    check_floating(kRmsNorm, "input", x),
                    {static_cast<std::byte*>(result.mutable_data_ptr()), check_floating(kRmsNorm, "result", result)},
                    nullptr});
  return result;
}

at::Tensor composite::rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  check_norm(input, weight);
  const at::Tensor values = input.contiguous().to(at::kFloat);
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
