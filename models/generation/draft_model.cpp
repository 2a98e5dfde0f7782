#include "models/generation/draft_model.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "models/architectures/architecture.h"
#include "models/generation/sampler.h"

namespace halfbyte::models {
namespace {

// A token less likely than this to its own model is not worth a row of the larger one's pass.
const double kLeastLogProbability = std::log(0.4);
// Tokens a pass: bounds the memory of activations.
constexpr std::size_t kReadTokens = 512;

}  // namespace

// Gives the last token's logits. Shape: (vocab_size).
at::Tensor DraftModel::read(std::span<const std::int64_t> tokens) {
  at::Tensor hidden;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kReadTokens) {
    const auto some = tokens.subspan(begin, std::min(kReadTokens, tokens.size() - begin));
    const StepRow row{&session_, static_cast<std::int64_t>(some.size())};
    const at::Tensor ids = at::tensor(at::IntArrayRef(some.data(), some.size())).to(model_.device());
    hidden = model_.step(ids, {&row, 1});
    read_.insert(read_.end(), some.begin(), some.end());
  }
  return model_.head(hidden.narrow(0, hidden.size(0) - 1, 1)).squeeze(0).cpu().contiguous();
}

void DraftModel::go_back(std::span<const std::int64_t> tokens) {
  const auto common = std::ranges::mismatch(read_, tokens).in1 - read_.begin();
  const auto most = std::min<std::int64_t>(common, static_cast<std::int64_t>(tokens.size()) - 1);
  read_.resize(static_cast<std::size_t>(session_.go_back(most, verified_)));
}

bool DraftModel::knows(std::span<const std::int64_t> tokens, std::size_t most) const {
  const ModelConfig& config = model_.config();
  const auto fresh = tokens.subspan(std::min(read_.size(), tokens.size()));
  return static_cast<std::int64_t>(tokens.size() + most) <= config.max_position_embeddings &&
         std::ranges::all_of(fresh, [&](std::int64_t id) { return id < config.vocab_size; });
}

TokenIds DraftModel::guess(std::span<const std::int64_t> tokens, std::size_t most) {
  go_back(tokens);
  if (most == 0 || !knows(tokens, most)) return {};
  at::Tensor logits = read(tokens.subspan(read_.size()));
  verified_.clear();
  if (session_.least() > session_.length() - 1) verified_.push_back(session_.fork());
  TokenIds out;
  while (true) {
    const std::span<const float> row(logits.const_data_ptr<float>(), static_cast<std::size_t>(logits.numel()));
    const std::int64_t token = std::ranges::max_element(row) - row.begin();
    if (log_probability(row, token) < kLeastLogProbability) return out;
    out.push_back(token);
    if (out.size() == most) return out;
    logits = read({&token, 1});
  }
}

}  // namespace halfbyte::models
