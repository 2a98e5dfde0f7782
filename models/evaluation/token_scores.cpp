#include "models/evaluation/token_scores.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace halfbyte::models {
namespace {

// exp(x - largest) of each row, and what log-probabilities are made of. Sums are in float64: a divergence of 1e-5 is no
// rounding error.
struct Exponentials {
  at::Tensor largest;  // (rows, 1), float32
  at::Tensor values;   // (rows, vocab_size), float32
  at::Tensor sum;      // (rows, 1), float64

  explicit Exponentials(const at::Tensor& logits)
      : largest(logits.amax(-1, /*keepdim=*/true)),
        values(logits.sub(largest).exp_()),
        sum(values.sum(-1, /*keepdim=*/true, at::kDouble)) {}

  at::Tensor log_probabilities(const at::Tensor& logits, const at::Tensor& targets) const {
    const at::Tensor shifted = logits.gather(1, targets.unsqueeze(1)).sub(largest).to(at::kDouble);
    return shifted.sub(sum.log()).squeeze(1);
  }
};

// KL(original || model) = sum p (a - b) - log(sum e^a / sum e^b), both logits less their row's largest.
at::Tensor divergences(const Exponentials& original, const Exponentials& model, const at::Tensor& original_logits,
                       const at::Tensor& logits) {
  const at::Tensor difference = original_logits.sub(logits).sub_(original.largest.sub(model.largest));
  const at::Tensor mean = difference.mul_(original.values).sum(-1, /*keepdim=*/true, at::kDouble).div(original.sum);
  return mean.sub(original.sum.log().sub(model.sum.log())).squeeze(1);
}

// Ids of the most likely tokens, the first first. Shape: (rows, kTopTokens or the vocabulary's size).
at::Tensor top_tokens(const at::Tensor& logits) {
  return std::get<1>(logits.topk(std::min(kTopTokens, logits.size(1)), -1));
}

class Column {
 public:
  explicit Column(const at::Tensor& values, at::ScalarType type) : values_(values.to(type).contiguous()) {}
  double real(std::int64_t row) const { return values_.const_data_ptr<double>()[row]; }
  std::int64_t whole(std::int64_t row) const { return values_.const_data_ptr<std::int64_t>()[row]; }

 private:
  at::Tensor values_;
};

// Shapes: (rows, n) each.
std::vector<std::int64_t> shared_of(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor found = ours.unsqueeze(2).eq(theirs.unsqueeze(1)).sum({1, 2}).contiguous();
  const auto* counts = found.const_data_ptr<std::int64_t>();
  return {counts, counts + found.numel()};
}

void compare(const at::Tensor& logits, const Exponentials& ours, const at::Tensor& top, const at::Tensor& original,
             const at::Tensor& targets, std::vector<TokenScore>& out) {
  const Exponentials theirs(original);
  const at::Tensor their_top = top_tokens(original);
  const Column divergence(divergences(theirs, ours, original, logits), at::kDouble);
  const Column log_probability(theirs.log_probabilities(original, targets), at::kDouble);
  const Column choice(their_top.select(1, 0), at::kLong);
  const std::vector<std::int64_t> shared = shared_of(top, their_top);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    out[i].divergence = divergence.real(row);
    out[i].original_log_probability = log_probability.real(row);
    out[i].original_choice = choice.whole(row);
    out[i].shared_top = shared[i];
  }
}

}  // namespace

std::vector<TokenScore> score_tokens(const at::Tensor& logits, const at::Tensor& original, const at::Tensor& targets) {
  const Exponentials ours(logits);
  const at::Tensor top = top_tokens(logits);
  const Column log_probability(ours.log_probabilities(logits, targets), at::kDouble);
  const Column choice(top.select(1, 0), at::kLong), target(targets, at::kLong);
  std::vector<TokenScore> out(static_cast<std::size_t>(logits.size(0)));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    out[i].token = target.whole(row);
    out[i].log_probability = log_probability.real(row);
    out[i].choice = choice.whole(row);
  }
  if (original.defined()) compare(logits, ours, top, original, targets, out);
  return out;
}

}  // namespace halfbyte::models
