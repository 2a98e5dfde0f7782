#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/matmul.h>
#include <ATen/ops/norm.h>

#include "models/training/update_rule.h"

namespace halfbyte::training {
namespace {

constexpr double kDecay = -0.8;     // 1 - beta2 is step^kDecay
constexpr double kClip = 1.0;       // most that the root mean square of an update may be, before the rate
constexpr double kSmallest = 1e-3;  // a parameter's root mean square is taken as at least this
constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

double root_mean_square(const at::Tensor& values) {
  return values.norm(2).item<double>() / std::sqrt(static_cast<double>(values.numel()));
}

at::Tensor mean_square(const at::Tensor& values, std::int64_t dimension) {
  return values.norm(2, dimension, /*keepdim=*/true).square_().div_(values.size(dimension));
}

// Updates are of the size of the parameter times the rate. Source: Shazeer & Stern 2018 (no first moment, the rate
// given); the order of operations is torch.optim.Adafactor's.
class Adafactor : public UpdateRule {
 public:
  Adafactor(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options)
      : options_(options),
        parameters_(parameters),
        rows_(shapes(parameters, -1), at::kFloat),
        columns_(shapes(parameters, -2), at::kFloat),
        vectors_(shapes(parameters, 0), at::kFloat) {}

  bool needs_all() const override { return true; }

  void update(std::span<const Piece> pieces, double rate) override {
    for (const Piece& piece : pieces) update(piece, rate);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> out;
    rows_.append_to(out, parameters_, "row_var");
    columns_.append_to(out, parameters_, "col_var");
    vectors_.append_to(out, parameters_, "variance");
    return out;
  }

 private:
  // Of a matrix, or several, with one dimension (-1, -2) averaged over; 0: of what is no matrix, as it is.
  static std::vector<std::vector<std::int64_t>> shapes(const std::vector<NamedTensor>& parameters, int averaged) {
    auto out = shapes_of(parameters);
    for (auto& shape : out) {
      if ((shape.size() > 1) != (averaged < 0)) {
        shape = {0};
      } else if (averaged < 0) {
        *(shape.end() + averaged) = 1;
      }
    }
    return out;
  }

  at::Tensor second_moment(const Piece& piece, double weight) {
    const at::Tensor& gradient = piece.gradient;
    if (gradient.dim() < 2) {
      const at::Tensor& variance = vectors_.whole(piece.parameter);
      variance.lerp_(gradient * gradient, weight);
      return variance.clone();
    }
    const at::Tensor &rows = rows_.whole(piece.parameter), &columns = columns_.whole(piece.parameter);
    rows.lerp_(mean_square(gradient, -1), weight);
    columns.lerp_(mean_square(gradient, -2), weight);
    return at::matmul(rows, columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min_(kEpsilon));
  }

  void update(const Piece& piece, double rate) {
    const auto step = static_cast<double>(piece.step);
    const at::Tensor& value = piece.value;
    const double size = std::max(kSmallest, root_mean_square(value)) * std::min(rate, 1 / std::sqrt(step));
    if (options_.weight_decay != 0) value.mul_(1 - rate * options_.weight_decay);
    const at::Tensor change = second_moment(piece, std::pow(step, kDecay));
    change.clamp_min_(kEpsilon * kEpsilon).rsqrt_().mul_(piece.gradient);
    value.add_(change, -size / std::max(1.0, root_mean_square(change) / kClip));
  }

  OptimizerOptions options_;
  std::vector<NamedTensor> parameters_;
  FlatBuffer rows_, columns_, vectors_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adafactor(const std::vector<NamedTensor>& parameters,
                                           const OptimizerOptions& options) {
  return std::make_unique<Adafactor>(parameters, options);
}

}  // namespace halfbyte::training
