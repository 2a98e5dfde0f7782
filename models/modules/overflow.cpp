#include "models/modules/overflow.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>

#include <torch/nn/module.h>

#include <halfbyte/error.h>
#include <halfbyte/low_bit_linear.h>

#include "models/cpu/damage.h"
#include "models/modules/embedding.h"
#include "quant/activations.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte::models {

constinit thread_local OverflowProbe* overflow_probe = nullptr;

namespace {

// A number is finite unless all bits of its exponent are set.
template <class Word>
bool has_full_exponent(const at::Tensor& x, Word exponent) noexcept {
  const auto* words = static_cast<const Word*>(x.const_data_ptr());
  const std::int64_t count = x.numel();
  Word found = 0;
  for (std::int64_t i = 0; i < count; ++i) found |= static_cast<Word>((words[i] & exponent) == exponent);
  return found != 0;
}

}  // namespace

// LibTorch's reductions take several microseconds to start, which shows beside a small model's token; a loop does not.
bool is_finite(const at::Tensor& x) {
  if (x.is_meta()) return true;
  if (x.is_cpu() && x.is_contiguous()) {
    if (x.scalar_type() == at::kFloat)
      return quant::are_finite({x.const_data_ptr<float>(), static_cast<std::size_t>(x.numel())});
    if (x.scalar_type() == at::kHalf) return !has_full_exponent<std::uint16_t>(x, 0x7c00);
    if (x.scalar_type() == at::kBFloat16) return !has_full_exponent<std::uint16_t>(x, 0x7f80);
  }
  return x.isfinite().all().item<bool>();
}

namespace {

// Installs a probe for as long as it lives.
class Watch {
 public:
  explicit Watch(OverflowProbe* probe) : before_(overflow_probe) { overflow_probe = probe; }
  ~Watch() { overflow_probe = before_; }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  OverflowProbe* before_;
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

double largest(const at::Tensor& x) { return x.to(at::kFloat).abs().max().item<double>(); }

std::string type_name(at::ScalarType type) {
  const auto dtype = from_torch(type);
  return dtype ? std::string(name(*dtype)) : c10::toString(type);
}

std::string limit_of(at::ScalarType type) {
  return type_name(type) + (type == at::kHalf ? ", which ends at 65504" : ", which ends at 3.4e38");
}

// What a message needs to know of the model that was run.
class Explanation {
 public:
  Explanation(const torch::nn::Module& root, const DtypePolicy& policy) : root_(root), policy_(policy) {
    for (const auto& item : root.named_modules("", /*include_self=*/false)) names_[item.value().get()] = item.key();
  }

  // The model's own tensors come first: what they hold is no matter of dtypes.
  [[noreturn]] void fail(const NotFinite& found, const Linear* previous) const {
    check_linear(*found.linear);
    check_parameters();
    throw Error(ErrorCode::kContract, text(found, previous));
  }

  // Nothing but the last steps of the pass.
  [[noreturn]] void fail_after(const Linear* previous, at::ScalarType type) const {
    check_parameters();
    throw Error(ErrorCode::kContract,
                place_after(previous) + ": an activation does not fit " + limit_of(type) + cure(type, ""));
  }

 private:
  std::string name_of(const torch::nn::Module& module) const {
    const auto found = names_.find(&module);
    return found == names_.end() ? "the model" : found->second;
  }

  std::string place_after(const Linear* previous) const {
    return previous ? "after " + name_of(*previous) : std::string("before the first product");
  }

  static void check_tensor(const std::string& name, const at::Tensor& tensor) {
    if (!at::isFloatingType(tensor.scalar_type()) || is_finite(tensor)) return;
    const auto count = tensor.isfinite().logical_not().sum().item<std::int64_t>();
    cpu::fail_damaged(name, count, tensor.numel());
  }

  static void check_packed(const LowBitTensor& weight, const std::string& where) {
    check_tensor("the scales" + where, weight.scales);
    if (weight.row_scales) check_tensor("the row scales" + where, *weight.row_scales);
  }

  void check_linear(const Linear& linear) const {
    const auto* packed = dynamic_cast<const LowBitLinear*>(&linear);
    if (packed) check_packed(packed->weight(), " of " + name_of(linear) + ".weight");
    for (const auto& item : linear.named_parameters(false))
      check_tensor(name_of(linear) + "." + item.key(), item.value());
  }

  // Of everything but products: norms, the embedding.
  void check_parameters() const {
    for (const auto& item : root_.named_modules("", /*include_self=*/false)) {
      if (dynamic_cast<const Linear*>(item.value().get())) continue;
      const auto* embedding = dynamic_cast<const Embedding*>(item.value().get());
      if (embedding && embedding->packed()) check_packed(*embedding->packed(), " of " + item.key() + ".weight");
      for (const auto& parameter : item.value()->named_parameters(/*recurse=*/false)) {
        check_tensor(item.key() + "." + parameter.key(), parameter.value());
      }
    }
  }

  // `linear`: the module for which an override is a cure; empty: it is none.
  Text cure(at::ScalarType type, const std::string& linear) const {
    const std::string under = " (policy " + policy_.name() + ")";
    if (type != at::kHalf)
      return under + ": no dtype holds more; the weights may be damaged (" + Operation::kVerify + ")";
    Text out = under + "; load with " + Option::kDtype + " amp:bfloat16";
    if (!linear.empty()) out += ", or with " + Option::kOverrides + " '" + linear + "=float32'";
    return out;
  }

  static std::string size_of(double value) { return std::isfinite(value) ? " of " + number(value) : std::string(); }

  Text text(const NotFinite& found, const Linear* previous) const {
    const std::string name = name_of(*found.linear);
    const at::ScalarType type = found.seen.scalar_type();
    const std::string unfit = " does not fit " + limit_of(type);
    switch (found.stage) {
      case NotFinite::Stage::kBetween:
        return place_after(previous) + ", before " + name + ": an activation" + unfit + cure(type, "");
      case NotFinite::Stage::kActivation:
        return name + ": an activation it multiplies" + unfit + cure(type, name);
      case NotFinite::Stage::kOperand:
        return name + ": an activation" + size_of(largest(found.input)) + " that it multiplies" + unfit +
               cure(type, name);
      case NotFinite::Stage::kResult:
        break;
    }
    const double value = largest(found.linear->multiply(found.input, at::kFloat));
    return name + ": a result" + size_of(value) + unfit + cure(type, "");
  }

  const torch::nn::Module& root_;
  const DtypePolicy& policy_;
  std::map<const torch::nn::Module*, std::string> names_;
};

}  // namespace

void OverflowProbe::product(const Linear& linear, const at::Tensor& input, const at::Tensor& operand,
                            const at::Tensor& result) {
  if (found_) return;
  if (!is_finite(input)) {
    found_ = {NotFinite::Stage::kBetween, &linear, input, input};
  } else if (!is_finite(operand)) {
    found_ = {NotFinite::Stage::kOperand, &linear, input, operand};
  } else if (!is_finite(result)) {
    found_ = {NotFinite::Stage::kResult, &linear, input, result};
  } else {
    previous_ = &linear;
  }
}

void OverflowProbe::activation(const Linear& consumer, const at::Tensor& x) {
  if (!found_ && !is_finite(x)) found_ = {NotFinite::Stage::kActivation, &consumer, x, x};
}

void explain_not_finite(const torch::nn::Module& root, const DtypePolicy& policy,
                        const std::function<at::Tensor()>& pass) {
  OverflowProbe probe;
  at::Tensor end;
  {
    const Watch watch(&probe);
    end = pass();
  }
  const Explanation explanation(root, policy);
  if (probe.found()) explanation.fail(*probe.found(), probe.previous());
  if (is_finite(end)) return;
  explanation.fail_after(probe.previous(), end.scalar_type());
}

}  // namespace halfbyte::models
