#include "models/generation/draft_model.h"

#include <algorithm>
#include <cmath>

#include "models/generation/sampler.h"

namespace halfbyte::models {
namespace {

// A token less likely than this to its own model is not worth a row of the larger one's pass.
const double kLeastLogProbability = std::log(0.4);
// Tokens a pass: bounds the memory of activations.
constexpr std::size_t kReadTokens = 512;

}  // namespace

std::span<const float> DraftModel::read(std::span<const std::int64_t> tokens) {
  std::int64_t last = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kReadTokens) {
    const auto some = tokens.subspan(begin, std::min(kReadTokens, tokens.size() - begin));
    const StepRow row{&session_, static_cast<std::int64_t>(some.size())};
    given_ = model_.step(some, {&row, 1});
    last = row.tokens - 1;
    read_.insert(read_.end(), some.begin(), some.end());
  }
  return given_->logits(last, 1);
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
  std::span<const float> row = read(tokens.subspan(read_.size()));
  verified_.clear();
  if (session_.least() > session_.length() - 1) verified_.push_back(session_.fork());
  TokenIds out;
  while (true) {
    const std::int64_t token = std::ranges::max_element(row) - row.begin();
    if (log_probability(row, token) < kLeastLogProbability) return out;
    out.push_back(token);
    if (out.size() == most) return out;
    row = read({&token, 1});
  }
}

}  // namespace halfbyte::models
