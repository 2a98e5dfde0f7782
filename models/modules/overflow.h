// Names the module in which activations stopped being finite. A pass is tested once, at its end, which costs nothing;
// only when that fails is it run again, with a probe that sees what goes into and comes out of every product.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <halfbyte/dtype_policy.h>

namespace torch::nn {
class Module;
}

namespace halfbyte::models {

class Linear;

// True for what a pass may give back. NaN and infinity spread to the end of a pass, but for those in queries and keys,
// which attention can hide: Session::note_not_finite.
bool is_finite(const at::Tensor& x);

// Runs the pass again and throws, naming where it happened. Returns when what the pass gives is finite after all.
// Errors: kContract naming a module in which an activation left the range of its dtype, and the cure; kCorrupt naming a
// weight that is not finite.
void explain_not_finite(const torch::nn::Module& root, const DtypePolicy& policy,
                        const std::function<at::Tensor()>& pass);

// What the first thing that was not finite was.
struct NotFinite {
  enum class Stage {
    kBetween,     // the input of `linear`, after the product of `previous`
    kActivation,  // the input of `linear`, made for it alone from finite ones
    kOperand,     // the input of `linear` was finite, and its cast was not
    kResult,      // the product of `linear`
  };
  Stage stage;
  const Linear* linear;
  at::Tensor input, seen;  // `seen` is not finite
};

class OverflowProbe {
 public:
  void product(const Linear& linear, const at::Tensor& input, const at::Tensor& operand, const at::Tensor& result);
  void activation(const Linear& consumer, const at::Tensor& x);
  const std::optional<NotFinite>& found() const noexcept { return found_; }
  // The last product whose result was finite; null: none.
  const Linear* previous() const noexcept { return previous_; }

 private:
  std::optional<NotFinite> found_;
  const Linear* previous_ = nullptr;
};

// Of this thread; null while nothing is looked for.
extern constinit thread_local OverflowProbe* overflow_probe;

// For every product: gives the result back.
inline at::Tensor watched(const Linear& linear, const at::Tensor& input, const at::Tensor& operand, at::Tensor result) {
  if (overflow_probe) [[unlikely]]
    overflow_probe->product(linear, input, operand, result);
  return result;
}

// For what is computed between products and read by one alone: gives it back.
inline at::Tensor watched_input(const Linear& consumer, at::Tensor x) {
  if (overflow_probe) [[unlikely]]
    overflow_probe->activation(consumer, x);
  return x;
}

}  // namespace halfbyte::models
