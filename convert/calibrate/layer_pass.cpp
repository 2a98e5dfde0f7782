#include "convert/calibrate/layer_pass.h"

#include <algorithm>
#include <charconv>

#include <ATen/ops/empty_like.h>

#include "models/modules/pass_watch.h"
#include "models/modules/tap.h"

namespace halfbyte::convert::calibrate {
namespace {

// Tokens that pass a layer at once, about: enough for products to run at full speed, and few enough that what lies
// between them stays small.
constexpr std::int64_t kTokens = 2048;

template <class Work>
void for_each_batch(const at::Tensor& input, const Work& work) {
  const std::int64_t batch = std::max<std::int64_t>(1, kTokens / input.size(1));
  for (std::int64_t begin = 0; begin < input.size(0); begin += batch) {
    models::PassWatch::check();
    work(begin, std::min(batch, input.size(0) - begin));
  }
}

// The rest of a pass is not needed.
struct Enough {};

// Of an expert's product: where its stack lies. Else empty.
std::string stack_of(const std::string& path) {
  const auto expert = expert_path(path);
  return expert ? expert->stack : "";
}

// Which products belong to a stage, as a pass shows them.
class Stage {
 public:
  explicit Stage(Moments& moments) : moments_(moments) {}

  void see(const models::Linear& linear, const at::Tensor& input) {
    if (!first_) first_ = &linear;
    const std::string stack = stack_of(linear.path());
    if (is_of(linear, input, stack)) {
      last_ = input;
      return moments_.add(linear, input);
    }
    if (stack.empty()) throw Enough();
  }

 private:
  bool is_of(const models::Linear& linear, const at::Tensor& input, const std::string& stack) const {
    if (&linear == first_) return true;
    if (last_.defined() && last_.data_ptr() == input.data_ptr() && last_.is_same_size(input)) return true;
    return !stack.empty() && stack == stack_of(first_->path());
  }

  Moments& moments_;
  const models::Linear* first_ = nullptr;
  at::Tensor last_;
};

}  // namespace

std::optional<ExpertPath> expert_path(const std::string& path) {
  const std::size_t last = path.rfind('.');
  const std::size_t dot = last == std::string::npos ? last : path.rfind('.', last - 1);
  if (dot == std::string::npos || dot >= last) return std::nullopt;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(path.data() + dot + 1, path.data() + last, number);
  if (error != std::errc() || end != path.data() + last) return std::nullopt;
  return ExpertPath{path.substr(0, dot) + path.substr(last), number};
}

at::Tensor LayerPass::run(const at::Tensor& input) const {
  at::Tensor out = at::empty_like(input);
  for_each_batch(input, [&](std::int64_t begin, std::int64_t count) {
    out.narrow(0, begin, count).copy_(runner_.forward(input.narrow(0, begin, count)));
  });
  return out;
}

at::Tensor LayerPass::gather(const at::Tensor& input, Moments& moments) const {
  const models::Tap tap([&](const models::Linear& linear, const at::Tensor& x, const at::Tensor&) {
    if (is_wanted_(linear)) moments.add(linear, x);
  });
  return run(input);
}

std::optional<Moments> LayerPass::next_stage(const at::Tensor& input) {
  Moments moments;
  Stage stage(moments);
  const models::Tap tap([&](const models::Linear& linear, const at::Tensor& x, const at::Tensor&) {
    if (is_wanted_(linear) && !done_.contains(&linear)) stage.see(linear, x);
  });
  for_each_batch(input, [&](std::int64_t begin, std::int64_t count) {
    try {
      runner_.forward(input.narrow(0, begin, count));
    } catch (const Enough&) {
    }
  });
  for (const Part& part : moments.parts()) done_.insert(part.linears.begin(), part.linears.end());
  if (moments.parts().empty()) return std::nullopt;
  return moments;
}

}  // namespace halfbyte::convert::calibrate
