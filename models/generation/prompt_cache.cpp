#include "models/generation/prompt_cache.h"

#include <algorithm>

#include "models/architectures/architecture.h"

namespace halfbyte {

PromptCache::PromptCache() : state_(std::make_unique<State>()) {}
PromptCache::~PromptCache() = default;
PromptCache::PromptCache(PromptCache&&) noexcept = default;
PromptCache& PromptCache::operator=(PromptCache&&) noexcept = default;
std::int64_t PromptCache::tokens() const noexcept { return static_cast<std::int64_t>(state_->tokens.size()); }
void PromptCache::clear() { *state_ = {}; }

// Where frequencies depend on the sequence's length, keys of a short one do not serve a long one, nor the other way.
// All that longrope knows of a length is whether it is beyond the limit.
std::int64_t PromptCache::State::usable(const models::CausalLM& owner, const TokenIds& prompt) const {
  if (!session || !is_whole || model.lock().get() != &owner) return 0;
  const models::RopeConfig& rope = owner.config().rope;
  const std::size_t shorter = std::min(tokens.size(), prompt.size());
  const std::size_t longer = std::max(tokens.size(), prompt.size());
  const auto limit = static_cast<std::size_t>(rope.fixed_length());
  const bool are_both_long = rope.type == models::RopeType::kLongrope && shorter > limit;
  if (limit != 0 && longer > limit && !are_both_long) return 0;
  const auto common = std::ranges::mismatch(tokens, prompt).in2 - prompt.begin();
  return std::min<std::int64_t>(common, static_cast<std::int64_t>(prompt.size()) - 1);
}

// At least doubles, so that a conversation's copies stay linear in its length.
void PromptCache::State::grow(const models::CausalLM& owner, std::int64_t capacity, std::int64_t kept) {
  const std::int64_t most = owner.config().max_position_embeddings + 1;
  models::Session larger =
      owner.make_session(1, std::max(capacity, std::min(most, kept > 0 ? 2 * session->capacity() : capacity)));
  for (std::int64_t layer = 0; kept > 0 && layer < owner.config().num_hidden_layers; ++layer) {
    const auto copy = [&](const at::Tensor& from, const at::Tensor& to) {
      to.narrow(2, 0, kept).copy_(from.narrow(2, 0, kept));
    };
    const at::Tensor& keys = session->keys(layer, at::kFloat);  // has its dtype already
    copy(keys, larger.keys(layer, keys.scalar_type()));
    const at::Tensor& values = session->values(layer, at::kFloat);
    copy(values, larger.values(layer, values.scalar_type()));
  }
  larger.advance(0, 1, kept);
  session.emplace(std::move(larger));
}

std::int64_t PromptCache::State::open(const models::CausalLM& owner, const TokenIds& prompt, std::int64_t capacity,
                                      bool may_reuse) {
  const std::int64_t kept = may_reuse ? usable(owner, prompt) : 0;
  const bool is_owners = session && model.lock().get() == &owner;
  if (!is_owners || session->capacity() < capacity) grow(owner, capacity, kept);
  session->advance(0, 1, kept - session->length(0));
  model = owner.weak_from_this();
  tokens.assign(prompt.begin(), prompt.begin() + kept);
  is_whole = false;
  return kept;
}

void PromptCache::State::close(const TokenIds& all) {
  tokens.assign(all.begin(), all.begin() + session->length(0));
  is_whole = true;
}

}  // namespace halfbyte
