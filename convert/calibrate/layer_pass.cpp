#include "convert/calibrate/layer_pass.h"

#include <algorithm>
#include <charconv>

#include <ATen/ops/empty_like.h>

#include "models/modules/pass_watch.h"
#include "models/modules/tap.h"

namespace halfbyte::convert::calibrate {
namespace {

template <class Work>
void for_each_batch(const States& input, const Work& work) {
  const auto [sequences, tokens, hidden_size] = input.shape();
  const std::int64_t batch = std::max<std::int64_t>(1, LayerPass::kTokens / tokens);
  for (std::int64_t begin = 0; begin < sequences; begin += batch) {
    models::PassWatch::check();
    work(input.read(begin, std::min(batch, sequences - begin)));
  }
}

// Into one tensor.
class Gathered final : public StatesSink {
 public:
  explicit Gathered(const at::Tensor& like) : states_(at::empty_like(like)) {}
  void write(const at::Tensor& states) override {
    states_.narrow(0, written_, states.size(0)).copy_(states);
    written_ += states.size(0);
  }
  at::Tensor take() && { return std::move(states_); }

 private:
  at::Tensor states_;
  std::int64_t written_ = 0;
};

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

void LayerPass::run(const States& input, StatesSink* output) const {
  for_each_batch(input, [&](const at::Tensor& batch) {
    const at::Tensor given = runner_.forward(batch);
    if (output) output->write(given);
  });
}

at::Tensor LayerPass::run(const at::Tensor& input) const {
  Gathered out(input);
  run(StatesInMemory(input), &out);
  return std::move(out).take();
}

at::Tensor LayerPass::gather(const at::Tensor& input, Moments& moments) const {
  const models::Tap tap([&](const models::Linear& linear, const at::Tensor& x, const at::Tensor&) {
    if (is_wanted_(linear)) moments.add(linear, x);
  });
  return run(input);
}

std::optional<Moments> LayerPass::finish(Moments moments) {
  for (const Part& part : moments.parts()) done_.insert(part.linears.begin(), part.linears.end());
  if (moments.parts().empty()) return std::nullopt;
  return moments;
}

std::optional<Moments> LayerPass::next_stage(const States& input) {
  Moments moments(factors_);
  Stage stage(moments);
  const models::Tap tap([&](const models::Linear& linear, const at::Tensor& x, const at::Tensor&) {
    if (is_wanted_(linear) && !done_.contains(&linear)) stage.see(linear, x);
  });
  for_each_batch(input, [&](const at::Tensor& batch) {
    try {
      runner_.forward(batch);
    } catch (const Enough&) {
    }
  });
  return finish(std::move(moments));
}

std::optional<Moments> LayerPass::gather_some(const States& input, std::uint64_t most_bytes, StatesSink* output) {
  if (has_all_) return std::nullopt;
  Moments moments(factors_);
  std::set<const models::Linear*> later;  // seen when there was no room, so that the sums would not be whole
  const models::Tap tap([&](const models::Linear& linear, const at::Tensor& x, const at::Tensor&) {
    if (!is_wanted_(linear) || done_.contains(&linear) || later.contains(&linear)) return;
    if (moments.bytes_with(linear, x) <= most_bytes || moments.parts().empty()) return moments.add(linear, x);
    later.insert(&linear);
  });
  run(input, output);
  has_all_ = later.empty();
  return finish(std::move(moments));
}

}  // namespace halfbyte::convert::calibrate
