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

// The first products that are left, and those that belong to them. Which they are is known after the first run.
class Stage {
 public:
  using Take = std::function<void(const models::Linear&, const at::Tensor& input)>;

  explicit Stage(std::function<bool(const models::Linear&)> is_left) : is_left_(std::move(is_left)) {}

  // The layer as far as they need it, with what each is given. Once it is known that nothing is left behind them, and
  // where `is_whole`, all of it: its result then.
  at::Tensor run(const LayerRunner& runner, const at::Tensor& states, bool is_whole, const Take& take) {
    last_ = at::Tensor();
    missing_ = members_;
    const models::Tap tap([&](const models::Linear& linear, const at::Tensor& input) {
      if (is_left_(linear)) see(linear, input, take);
      if (is_known_ && missing_.empty() && !is_of_experts() && !(is_whole && is_last_)) throw Enough();
    });
    try {
      const at::Tensor out = runner.forward(states);
      is_known_ = true;
      return out;
    } catch (const Enough&) {
      is_known_ = true;
      return {};
    }
  }

  bool is_last() const noexcept { return is_last_; }

 private:
  void see(const models::Linear& linear, const at::Tensor& input, const Take& take) {
    const std::string& path = linear.path();
    if (first_.empty()) first_ = path;
    if (is_member(path, input)) {
      last_ = input;
      if (!is_known_) members_.insert(path);
      missing_.erase(path);
      return take(linear, input);
    }
    is_last_ = false;
    if (stack_of(path).empty()) throw Enough();
  }

  bool is_member(const std::string& path, const at::Tensor& input) const {
    if (path == first_ || members_.contains(path)) return true;
    if (last_.defined() && last_.data_ptr() == input.data_ptr() && last_.is_same_size(input)) return true;
    return is_of_experts() && stack_of(path) == stack_of(first_);
  }
  // Other batches may be given to other experts.
  bool is_of_experts() const { return !stack_of(first_).empty(); }

  std::function<bool(const models::Linear&)> is_left_;
  std::string first_;
  std::set<std::string> members_, missing_;  // paths
  bool is_known_ = false, is_last_ = true;
  at::Tensor last_;  // held, so that no other input can lie where it does
};

}  // namespace

std::optional<Moments> PairedPass::next_stage(std::uint64_t most_bytes) {
  if (has_all_) return std::nullopt;
  Moments moments(factors_);
  bool has_room = true;
  Stage stage([&](const models::Linear& linear) { return is_wanted_(linear) && !done_.contains(linear.path()); });
  std::map<std::string, at::Tensor> originals;
  const auto keep = [&](const models::Linear& linear, const at::Tensor& input) {
    if (!expert_path(linear.path())) originals.emplace(linear.path(), input);
  };
  const auto add = [&](const models::Linear& linear, const at::Tensor& input) {
    const auto found = originals.find(linear.path());
    const at::Tensor original = found == originals.end() ? at::Tensor() : found->second;
    if (moments.bytes_with(linear, input, original.defined()) <= most_bytes || moments.parts().empty())
      return moments.add(linear, input, original);
    has_room = false;
  };
  for_each_batch(original_.given.shape(), LayerPass::kTokens, [&](std::int64_t begin, std::int64_t count) {
    originals.clear();
    const at::Tensor given = stage.run(original_.runner, original_.given.read(begin, count), output_ != nullptr, keep);
    if (stage.is_last() && output_) output_->write(given);
    stage.run(quantized_.runner, quantized_.given.read(begin, count), false, add);
  });
  if (stage.is_last()) output_ = nullptr;  // it has all
  has_all_ = stage.is_last() && has_room;
  for (const Part& part : moments.parts())
    for (const models::Linear* linear : part.linears) done_.insert(linear->path());
  if (moments.parts().empty()) return std::nullopt;
  return moments;
}

}  // namespace halfbyte::convert::calibrate
