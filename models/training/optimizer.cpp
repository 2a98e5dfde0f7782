#include "models/training/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <halfbyte/error.h>

#include "models/training/named_state.h"
#include "models/training/rounding.h"
#include "models/training/update_rule.h"
#include "quant/thread_pool.h"

namespace halfbyte::training {
namespace {

struct Kind {
  OptimizerKind kind;
  std::string_view name;
  MakeRule make_rule;
};

constexpr std::array kKinds = {
    Kind{OptimizerKind::kAdamW, "adamw", make_adamw},
    Kind{OptimizerKind::kAdamW8bit, "adamw8bit", make_adamw8bit},
    Kind{OptimizerKind::kSgd, "sgd", make_sgd},
    Kind{OptimizerKind::kAdafactor, "adafactor", make_adafactor},
};

const Kind& row_of(OptimizerKind kind) noexcept { return *std::ranges::find(kKinds, kind, &Kind::kind); }

constexpr std::int64_t kStretch = std::int64_t{1} << 20;  // elements of a bfloat16 parameter that are float32 at a time
constexpr std::int64_t kRoundedPerTurn = 16384;           // that a thread rounds before it takes more

[[noreturn]] void refuse(const std::string& problem) { throw Error(ErrorCode::kInvalidArgument, problem); }

// Checks what every kind has in common; each refusal says what to do.
void check(const NamedTensor& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  const std::string name = "parameter '" + parameter.name + "' ";
  if (!tensor.defined()) refuse(name + "is no tensor: leave it out, or load it first");
  const std::string dtype = c10::toString(tensor.scalar_type());
  if (tensor.scalar_type() == at::kHalf)
    refuse(name + "is float16, whose updates would be lost or overflow: train a float32 master of it");
  if (!tensor.is_floating_point())
    refuse(name + "is of " + dtype + ", packed or whole numbers: train adapters beside it, or a float32 master of it");
  if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kBFloat16)
    refuse(name + "is of " + dtype + ": train a float32 master of it");
  if (!tensor.device().is_cpu()) refuse(name + "is on " + tensor.device().str() + ": masters are kept on the CPU");
  if (tensor.numel() == 0) refuse(name + "has no elements: leave it out");
  if (!tensor.is_contiguous()) refuse(name + "is a view that is not contiguous: train a contiguous copy of it");
}

void check(const std::vector<NamedTensor>& parameters) {
  if (parameters.empty()) refuse("there are no parameters to train");
  std::set<std::string_view> names;
  std::map<const void*, std::string_view> places;
  for (const NamedTensor& one : parameters) {
    check(one);
    if (!names.insert(one.name).second) refuse("parameter '" + one.name + "' is named twice");
    const auto [same, is_new] = places.emplace(one.tensor.const_data_ptr(), one.name);
    if (!is_new)
      refuse("parameters '" + std::string(same->second) + "' and '" + one.name + "' are one tensor: train it once");
  }
}

void check(const OptimizerOptions& options) {
  const auto share = [](const std::string& what, double value) {
    if (!(value >= 0 && value < 1)) refuse(what + " must be from 0 on and below 1, not " + std::to_string(value));
  };
  share("beta1", options.beta1);
  share("beta2", options.beta2);
  share("momentum", options.momentum);
  if (!(options.epsilon > 0 && std::isfinite(options.epsilon))) refuse("epsilon must be above 0");
  if (!(options.weight_decay >= 0 && std::isfinite(options.weight_decay))) refuse("weight_decay must be 0 or more");
  if (std::ranges::find(kKinds, options.kind, &Kind::kind) == kKinds.end()) refuse("no such optimizer");
}

class RuleOptimizer : public Optimizer {
 public:
  RuleOptimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options)
      : parameters_(std::move(parameters)),
        seed_(options.seed),
        rule_(row_of(options.kind).make_rule(parameters_, options)),
        steps_(at::zeros({static_cast<std::int64_t>(parameters_.size())}, at::kLong)) {}

  // All float32 ones by one call of the rule.
  void step(double rate) override {
    if (!(rate >= 0 && std::isfinite(rate))) refuse("a learning rate must be 0 or more, not " + std::to_string(rate));
    const at::NoGradGuard no_gradients;
    auto* const steps = steps_.mutable_data_ptr<std::int64_t>();
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].tensor;
      if (!parameter.grad().defined()) continue;
      const Piece piece{i, 0, ++steps[i], parameter, parameter.grad().contiguous()};
      if (parameter.scalar_type() == at::kFloat) {
        pieces.push_back(piece);
      } else {
        update_rounded(piece, rate);
      }
    }
    if (!pieces.empty()) rule_->update(pieces, rate);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> out = rule_->state();
    out.push_back({"steps", steps_});
    return out;
  }

  void restore(const std::vector<NamedTensor>& state) override { copy_state(state, this->state()); }

 private:
  // Of bfloat16: in stretches, so that little of it is float32 at a time.
  void update_rounded(const Piece& all, double rate) const {
    const std::int64_t elements = all.value.numel();
    if (rule_->needs_all()) return update_rounded(all, all.value, rate);
    const at::Tensor value = all.value.view(-1), gradient = all.gradient.view(-1);
    for (std::int64_t at = 0; at < elements; at += kStretch) {
      const std::int64_t count = std::min(kStretch, elements - at);
      const Piece stretch{all.parameter, at, all.step, value.narrow(0, at, count), gradient.narrow(0, at, count)};
      update_rounded(stretch, stretch.value, rate);
    }
  }

  void update_rounded(Piece piece, const at::Tensor& stored, double rate) const {
    piece.value = stored.to(at::kFloat);
    piece.gradient = piece.gradient.to(at::kFloat);
    rule_->update({&piece, 1}, rate);
    const Chances chances{seed_, piece.parameter, static_cast<std::uint64_t>(piece.step)};
    const auto* const from = piece.value.const_data_ptr<float>();
    auto* const to = reinterpret_cast<std::uint16_t*>(stored.mutable_data_ptr<at::BFloat16>());
    const std::int64_t elements = stored.numel();
    const quant::AmongOpenMp among_openmp;
    quant::for_each_piece((elements + kRoundedPerTurn - 1) / kRoundedPerTurn, /*is_worth_threads=*/true,
                          [&](std::int64_t turn) {
                            const std::int64_t at = turn * kRoundedPerTurn;
                            const auto count = static_cast<std::size_t>(std::min(kRoundedPerTurn, elements - at));
                            round_stochastically(chances, piece.offset + at, from + at, count, to + at);
                          });
  }

  std::vector<NamedTensor> parameters_;
  std::uint64_t seed_;
  std::unique_ptr<UpdateRule> rule_;
  at::Tensor steps_;  // updates that each parameter has had
};

}  // namespace

std::span<const OptimizerKind> optimizer_kinds() noexcept {
  static constexpr auto kinds = [] {
    std::array<OptimizerKind, kKinds.size()> out = {};
    std::ranges::transform(kKinds, out.begin(), &Kind::kind);
    return out;
  }();
  return kinds;
}

std::string_view name(OptimizerKind kind) noexcept { return row_of(kind).name; }

std::unique_ptr<Optimizer> make_optimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options) {
  check(options);
  check(parameters);
  return std::make_unique<RuleOptimizer>(std::move(parameters), options);
}

}  // namespace halfbyte::training
