#include "convert/calibrate/paired_pass.h"

#include <map>

#include "convert/calibrate/expert_path.h"
#include "convert/calibrate/layer_pass.h"
#include "models/modules/tap.h"

namespace halfbyte::convert::calibrate {
namespace {

// The rest of a pass is not needed.
struct Enough {};

// Of an expert's product: where its stack lies. Else empty.
std::string stack_of(const std::string& path) {
  const auto expert = expert_path(path);
  return expert ? expert->stack : "";
}

// The first products that are left, and those that belong to them.
class Stage {
 public:
  using Take = std::function<void(const models::Linear&, const at::Tensor& input)>;

  explicit Stage(std::function<bool(const models::Linear&)> is_left) : is_left_(std::move(is_left)) {}

  // The layer as far as they need it, with what each is given.
  void run(const LayerRunner& runner, const at::Tensor& states, const Take& take) {
    last_ = at::Tensor();
    const models::Tap tap([&](const models::Linear& linear, const at::Tensor& input, const at::Tensor&) {
      if (is_left_(linear)) see(linear, input, take);
    });
    try {
      runner.forward(states);
    } catch (const Enough&) {
    }
  }

 private:
  void see(const models::Linear& linear, const at::Tensor& input, const Take& take) {
    const std::string& path = linear.path();
    const std::string stack = stack_of(path);
    if (first_.empty()) first_ = path;
    if (path == first_ || is_last(input) || (!stack.empty() && stack == stack_of(first_))) {
      last_ = input;
      return take(linear, input);
    }
    if (stack.empty()) throw Enough();
  }

  bool is_last(const at::Tensor& input) const {
    return last_.defined() && last_.data_ptr() == input.data_ptr() && last_.is_same_size(input);
  }

  std::function<bool(const models::Linear&)> is_left_;
  std::string first_;
  at::Tensor last_;  // held, so that no other input can lie where it does
};

}  // namespace

std::optional<Moments> PairedPass::next_stage(std::uint64_t most_bytes) {
  Moments moments(factors_);
  Stage stage(
      [&](const models::Linear& linear) { return is_wanted_(linear) && !done_.contains(linear.path()); });
  std::map<std::string, at::Tensor> originals;
  const auto keep = [&](const models::Linear& linear, const at::Tensor& input) {
    if (!expert_path(linear.path())) originals.emplace(linear.path(), input);
  };
  const auto add = [&](const models::Linear& linear, const at::Tensor& input) {
    const auto found = originals.find(linear.path());
    const at::Tensor original = found == originals.end() ? at::Tensor() : found->second;
    if (moments.bytes_with(linear, input, original.defined()) <= most_bytes || moments.parts().empty())
      moments.add(linear, input, original);
  };
  for_each_batch(original_.given.shape(), LayerPass::kTokens, [&](std::int64_t begin, std::int64_t count) {
    originals.clear();
    stage.run(original_.runner, original_.given.read(begin, count), keep);
    stage.run(quantized_.runner, quantized_.given.read(begin, count), add);
  });
  for (const Part& part : moments.parts())
    for (const models::Linear* linear : part.linears) done_.insert(linear->path());
  if (moments.parts().empty()) return std::nullopt;
  return moments;
}

}  // namespace halfbyte::convert::calibrate
