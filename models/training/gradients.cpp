#include "models/training/gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <halfbyte/error.h>

#include "models/training/named_state.h"
#include "models/training/square_sum.h"
#include "quant/thread_pool.h"

namespace halfbyte::training {
namespace {

constexpr std::int64_t kPerTurn = 32768;  // elements that a thread adds up before it takes more
constexpr std::int64_t kGoodSteps = 2000;
constexpr double kLeastScale = 0x1p-24, kLargestScale = 0x1p64;

std::vector<at::Tensor> gradients_of(std::span<const at::Tensor> parameters) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& one : parameters) {
    if (one.grad().defined()) out.push_back(one.grad());
  }
  return out;
}

struct Stretch {
  const float* values;
  std::size_t count;
};

// Not finite where a gradient is not: squares of float32 numbers and their sums are far from the end of double.
double square_sum(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> held;  // what is float32 and contiguous already is no copy
  std::vector<Stretch> stretches;
  for (const at::Tensor& gradient : gradients) {
    held.push_back(gradient.to(at::kFloat).contiguous());
    const auto* values = held.back().const_data_ptr<float>();
    for (std::int64_t at = 0; at < held.back().numel(); at += kPerTurn)
      stretches.push_back({values + at, static_cast<std::size_t>(std::min(kPerTurn, held.back().numel() - at))});
  }
  std::vector<double> sums(stretches.size());
  const quant::AmongOpenMp among_openmp;
  quant::for_each_piece(static_cast<std::int64_t>(stretches.size()), /*is_worth_threads=*/true, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    sums[at] = training::square_sum(stretches[at].values, stretches[at].count);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void multiply(const std::vector<at::Tensor>& gradients, double factor) {
  const at::NoGradGuard no_gradients;
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor);
}

}  // namespace

double clip_norm(std::span<const at::Tensor> parameters, double largest) {
  if (!(largest > 0)) throw Error(ErrorCode::kInvalidArgument, "gradients are clipped to a norm above 0");
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  const double norm = std::sqrt(square_sum(gradients));
  const double factor = largest / (norm + 1e-6);  // as torch.nn.utils.clip_grad_norm_
  if (std::isfinite(norm) && factor < 1) multiply(gradients, factor);
  return norm;
}

bool LossScaler::unscale(std::span<const at::Tensor> parameters) {
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (std::isfinite(square_sum(gradients))) {
    multiply(gradients, 1 / scale_);
    if (++good_steps_ == kGoodSteps) {
      scale_ = std::min(2 * scale_, kLargestScale);
      good_steps_ = 0;
    }
    return true;
  }
  if (scale_ <= kLeastScale)
    throw Error(ErrorCode::kUnsupported,
                "gradients are not finite however small the loss is scaled: take a lower learning rate, or compute in "
                "bfloat16");
  scale_ /= 2;
  good_steps_ = 0;
  return false;
}

std::vector<NamedTensor> LossScaler::state() const {
  return {{"loss_scale", at::full({}, scale_, at::kFloat)}, {"good_steps", at::full({}, good_steps_, at::kLong)}};
}

void LossScaler::restore(const std::vector<NamedTensor>& state) {
  const std::vector<NamedTensor> mine = this->state();
  copy_state(state, mine);
  scale_ = mine[0].tensor.item<double>();
  good_steps_ = mine[1].tensor.item<std::int64_t>();
}

}  // namespace halfbyte::training
