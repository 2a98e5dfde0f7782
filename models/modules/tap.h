// Shows what goes into and comes out of every product of a thread's passes: for calibration, and for measuring layer by
// layer.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

class Linear;

// For passes of this thread while it lives; the innermost one is asked. Passes then run module by module, since the
// fused ones of models/cpu keep no inputs; without a tap a product tests one pointer.
class Tap {
 public:
  // `linear` says its name by path(). `input` is what it was given, before any cast to its operand's dtype: what
  // several products share may have been cast for all of them. `result` includes the bias. An expert is given its own
  // tokens alone. Both are the pass's own tensors: not to be written to, and kept only by who has the memory. Shapes:
  // input (.., in_features), result (.., out_features).
  using Product = std::function<void(const Linear& linear, const at::Tensor& input, const at::Tensor& result)>;
  // The same before the product is computed: what it throws ends the pass there.
  using Given = std::function<void(const Linear& linear, const at::Tensor& input)>;

  // What takes the place of a product's result: the same, or with something added.
  struct Change {
    std::function<at::Tensor(const Linear& linear, const at::Tensor& input, const at::Tensor& result)> result;
  };

  explicit Tap(Product product) : Tap({}, std::move(product), {}) {}
  explicit Tap(Given given) : Tap(std::move(given), {}, {}) {}
  explicit Tap(Change change) : Tap({}, {}, std::move(change)) {}
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  static bool is_there() noexcept { return innermost_ != nullptr; }  // in this thread
  // For every product: before it, and after it, which gives the result back, or what takes its place.
  static void given(const Linear& linear, const at::Tensor& input) {
    if (innermost_ && innermost_->given_) [[unlikely]]
      innermost_->given_(linear, input);
  }
  static at::Tensor product(const Linear& linear, const at::Tensor& input, at::Tensor result) {
    if (!innermost_) [[likely]]
      return result;
    if (innermost_->product_) innermost_->product_(linear, input, result);
    return innermost_->change_.result ? innermost_->change_.result(linear, input, result) : result;
  }

 private:
  Tap(Given given, Product product, Change change);

  static constinit thread_local Tap* innermost_;
  Given given_;
  Product product_;
  Change change_;
  Tap* outer_;
};

}  // namespace halfbyte::models
