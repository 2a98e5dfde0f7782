#include "convert/calibrate/layer_pass.h"

#include <ATen/ops/empty_like.h>

#include "convert/calibrate/kept_inputs.h"
#include "models/modules/tap.h"

namespace halfbyte::convert::calibrate {
namespace {

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

}  // namespace

void LayerPass::run(const States& input, StatesSink* output) const {
  for_each_batch(input.shape(), kTokens, [&](std::int64_t begin, std::int64_t count) {
    const at::Tensor given = runner_.forward(input.read(begin, count));
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

namespace {

// `later`: seen when there was no room, so that the sums would not be whole.
template <class Input>
void offer(Moments& moments, std::uint64_t most_bytes, const models::Linear& linear, const Input& input,
           std::set<const models::Linear*>& later) {
  if (later.contains(&linear)) return;
  if (moments.bytes_with(linear, input) <= most_bytes || moments.parts().empty()) return moments.add(linear, input);
  later.insert(&linear);
}

}  // namespace

Moments LayerPass::gather_alone(const States& input, std::uint64_t most_bytes, StatesSink* output, Later& later) const {
  Moments moments(factors_);
  const models::Tap tap([&](const models::Linear& linear, const at::Tensor& x, const at::Tensor&) {
    if (is_wanted_(linear) && !done_.contains(&linear)) offer(moments, most_bytes, linear, x, later);
  });
  run(input, output);
  return moments;
}

Moments LayerPass::gather_together(const States& input, std::uint64_t most_bytes, StatesSink* output,
                                   Later& later) const {
  KeptInputs inputs(*meeting_, factors_);
  {
    const models::Tap tap([&](const models::Linear& linear, const at::Tensor& x, const at::Tensor&) {
      if (is_wanted_(linear) && !done_.contains(&linear)) inputs.add(linear, x);
    });
    run(input, output);
  }
  inputs.meet("");
  Moments moments(factors_, {meeting_->index(), meeting_->count()});
  inputs.for_each([&](const std::string& path, const KeptInput& kept) {
    offer(moments, most_bytes, runner_.linear(path), kept, later);
  });
  share_sums(moments, *meeting_);
  return moments;
}

std::optional<Moments> LayerPass::gather_some(const States& input, std::uint64_t most_bytes, StatesSink* output) {
  if (has_all_) return std::nullopt;
  Later later;
  Moments moments =
      meeting_ ? gather_together(input, most_bytes, output, later) : gather_alone(input, most_bytes, output, later);
  has_all_ = later.empty();
  for (const Part& part : moments.parts()) done_.insert(part.linears.begin(), part.linears.end());
  if (moments.parts().empty()) return std::nullopt;
  return moments;
}

}  // namespace halfbyte::convert::calibrate
