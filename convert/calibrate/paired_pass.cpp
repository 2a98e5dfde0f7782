#include "convert/calibrate/paired_pass.h"

#include <algorithm>
#include <vector>

#include <halfbyte/error.h>

#include "convert/calibrate/expert_path.h"
#include "convert/calibrate/kept_inputs.h"
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

  // Whether it ran at all.
  bool is_known() const noexcept { return is_known_; }
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
    if (!seen.empty() && is_same_input(seen.back().input, input)) return true;
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

// What a part that shares the work says of its batches: nothing where it had none.
std::string words_of(bool is_known, bool is_last, bool has_others) {
  return is_known ? std::string(is_last ? "last" : "more") + (has_others ? "+" : "") : "";
}

}  // namespace

// Each product of the stage with its input, and that of the original where it is compared.
template <class Stage, class Add>
void PairedPass::run_stage(Stage& stage, const Add& add) {
  for_each_batch(original_.given.shape(), LayerPass::kTokens, [&](std::int64_t begin, std::int64_t count) {
    const std::vector<Given> inputs = stage.of_quantized(quantized_.runner, quantized_.given.read(begin, count));
    StatesSink* output = stage.is_last() ? output_ : nullptr;
    std::vector<Given> originals;
    if (output || !(inputs.empty() || stage.is_of_experts()))
      originals = stage.of_original(original_.runner, original_.given.read(begin, count), output);
    for (const Given& given : inputs) add(given, input_of(given.linear->path(), originals));
  });
}

Moments PairedPass::gather_alone(Ahead& ahead, std::uint64_t most_bytes) {
  Moments moments(factors_);
  Stage stage([&](const models::Linear& linear) { return is_left(linear); });
  run_stage(stage, [&](const Given& given, const at::Tensor& original) {
    if (moments.bytes_with(*given.linear, given.input, original.defined()) <= most_bytes || moments.parts().empty())
      moments.add(*given.linear, given.input, original);
    else
      ahead.has_room = false;
  });
  ahead.is_last = stage.is_last();
  ahead.has_others = stage.has_others();
  return moments;
}

Moments PairedPass::gather_together(Ahead& ahead, std::uint64_t most_bytes) {
  KeptInputs inputs(*meeting_, factors_);
  Stage stage([&](const models::Linear& linear) { return is_left(linear); });
  run_stage(stage,
            [&](const Given& given, const at::Tensor& original) { inputs.add(*given.linear, given.input, original); });
  const std::vector<std::string> said = inputs.meet(words_of(stage.is_known(), stage.is_last(), stage.has_others()));
  const auto first = std::ranges::find_if(said, [](const std::string& one) { return !one.empty(); });
  ahead.is_last = first != said.end() && first->starts_with("last");  // by the first batch of all
  ahead.has_others = std::ranges::any_of(said, [](const std::string& one) { return one.ends_with("+"); });
  if (stage.is_known() && stage.is_last() != ahead.is_last)
    throw Error(ErrorCode::kContract, "parts of a calibration see the products of a layer in another order");
  Moments moments(factors_, {meeting_->index(), meeting_->count()});
  inputs.for_each([&](const std::string& path, const KeptInput& kept) {
    const models::Linear& linear = quantized_.runner.linear(path);
    if (moments.bytes_with(linear, kept) <= most_bytes || moments.parts().empty())
      moments.add(linear, kept);
    else
      ahead.has_room = false;
  });
  share_sums(moments, *meeting_);
  return moments;
}

bool PairedPass::is_left(const models::Linear& linear) const {
  return is_wanted_(linear) && !done_.contains(linear.path());
}

std::optional<Moments> PairedPass::next_stage(std::uint64_t most_bytes) {
  if (has_all_) return std::nullopt;
  Ahead ahead;
  Moments moments = meeting_ ? gather_together(ahead, most_bytes) : gather_alone(ahead, most_bytes);
  if (ahead.is_last) output_ = nullptr;  // it has all
  has_all_ = ahead.is_last && ahead.has_room && !ahead.has_others;
  for (const Part& part : moments.parts())
    for (const models::Linear* linear : part.linears) done_.insert(linear->path());
  if (moments.parts().empty()) return std::nullopt;
  return moments;
}

}  // namespace halfbyte::convert::calibrate
