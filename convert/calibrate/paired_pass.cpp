#include "convert/calibrate/paired_pass.h"

#include <algorithm>
#include <vector>

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

// What a product was given.
struct Given {
  const models::Linear* linear;
  at::Tensor input;  // held, so that no other input can lie where it does
};

// The first products of the quantised layer that are left, and those that belong to them. Which they are, but for
// experts, is known after its first run.
class Stage {
 public:
  using IsLeft = std::function<bool(const models::Linear&)>;

  explicit Stage(IsLeft is_left) : is_left_(std::move(is_left)) {}

  // The quantised layer, as far as they need it.
  std::vector<Given> of_quantized(const LayerRunner& runner, const at::Tensor& states) {
    std::vector<Given> out;
    std::size_t missing = members_.size();
    const models::Tap tap([&](const models::Linear& linear, const at::Tensor& input) {
      if (is_left_(linear)) see(linear, input, out);
      if (is_known_ && !is_of_experts() && out.size() >= missing) throw Enough();
    });
    try {
      runner.forward(states);
    } catch (const Enough&) {
    }
    if (!is_known_) is_last_ = !first_.empty() && !is_of_experts() && !has_others_;
    is_known_ = true;
    return out;
  }

  // What the original's are given for the same tokens. With `output` all of the layer is run, for its result.
  std::vector<Given> of_original(const LayerRunner& runner, const at::Tensor& states, StatesSink* output) const {
    std::vector<Given> out;
    const models::Tap tap([&](const models::Linear& linear, const at::Tensor& input) {
      if (members_.contains(linear.path())) out.push_back({&linear, input});
      if (!output && out.size() == members_.size()) throw Enough();
    });
    try {
      const at::Tensor result = runner.forward(states);
      if (output) output->write(result);
    } catch (const Enough&) {
    }
    return out;
  }

  // Whether nothing is left behind them, by the first run; experts that it did not choose may be.
  bool is_last() const noexcept { return is_last_; }
  // Whether something else that is left was seen.
  bool has_others() const noexcept { return has_others_; }
  // The two layers may give an expert different tokens.
  bool is_of_experts() const { return !stack_of(first_).empty(); }

 private:
  void see(const models::Linear& linear, const at::Tensor& input, std::vector<Given>& out) {
    const std::string& path = linear.path();
    if (first_.empty()) first_ = path;
    if (is_member(path, input, out)) {
      if (!is_known_) members_.insert(path);
      return out.push_back({&linear, input});
    }
    has_others_ = true;
    if (!is_known_ && !is_of_experts()) throw Enough();
  }

  bool is_member(const std::string& path, const at::Tensor& input, const std::vector<Given>& seen) const {
    if (path == first_ || (!is_of_experts() && members_.contains(path))) return true;
    if (!seen.empty() && seen.back().input.data_ptr() == input.data_ptr() && seen.back().input.is_same_size(input))
      return true;
    return is_of_experts() && stack_of(path) == stack_of(first_);
  }

  IsLeft is_left_;
  std::string first_;
  std::set<std::string> members_;  // paths
  bool is_known_ = false, is_last_ = false, has_others_ = false;
};

at::Tensor input_of(const std::string& path, const std::vector<Given>& all) {
  const auto found = std::ranges::find(all, path, [](const Given& given) { return given.linear->path(); });
  return found == all.end() ? at::Tensor() : found->input;
}

}  // namespace

std::optional<Moments> PairedPass::next_stage(std::uint64_t most_bytes) {
  if (has_all_) return std::nullopt;
  Moments moments(factors_);
  bool has_room = true;
  Stage stage([&](const models::Linear& linear) { return is_wanted_(linear) && !done_.contains(linear.path()); });
  for_each_batch(original_.given.shape(), LayerPass::kTokens, [&](std::int64_t begin, std::int64_t count) {
    const std::vector<Given> inputs = stage.of_quantized(quantized_.runner, quantized_.given.read(begin, count));
    StatesSink* output = stage.is_last() ? output_ : nullptr;
    std::vector<Given> originals;
    if (output || !(inputs.empty() || stage.is_of_experts()))
      originals = stage.of_original(original_.runner, original_.given.read(begin, count), output);
    for (const Given& given : inputs) {
      const at::Tensor original = input_of(given.linear->path(), originals);
      if (moments.bytes_with(*given.linear, given.input, original.defined()) <= most_bytes || moments.parts().empty())
        moments.add(*given.linear, given.input, original);
      else
        has_room = false;
    }
  });
  if (stage.is_last()) output_ = nullptr;  // it has all
  has_all_ = stage.is_last() && has_room && !stage.has_others();
  for (const Part& part : moments.parts())
    for (const models::Linear* linear : part.linears) done_.insert(linear->path());
  if (moments.parts().empty()) return std::nullopt;
  return moments;
}

}  // namespace halfbyte::convert::calibrate
