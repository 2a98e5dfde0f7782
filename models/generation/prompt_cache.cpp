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

namespace {

// Where frequencies depend on the sequence's length, keys of a short one do not serve a long one, nor the other way.
// All that longrope knows of a length is whether it is beyond the limit.
bool serves(const models::RopeConfig& rope, std::size_t one, std::size_t other) {
  const auto [shorter, longer] = std::minmax(one, other);
  const auto limit = static_cast<std::size_t>(rope.fixed_length());
  const bool are_both_long = rope.type == models::RopeType::kLongrope && shorter > limit;
  return limit == 0 || longer <= limit || are_both_long;
}

}  // namespace

std::int64_t PromptCache::State::usable(const models::CausalLM& owner, const TokenIds& prompt) const {
  if (!is_whole) return 0;
  const auto is_served = [&](const models::RopeConfig& rope) { return serves(rope, tokens.size(), prompt.size()); };
  if (!std::ranges::all_of(owner.config().ropes, is_served)) return 0;
  const auto common = std::ranges::mismatch(tokens, prompt).in2 - prompt.begin();
  return std::min<std::int64_t>(common, static_cast<std::int64_t>(prompt.size()) - 1);
}

std::int64_t PromptCache::State::open(const models::CausalLM& owner, const TokenIds& prompt, bool may_reuse) {
  if (!session || model.lock().get() != &owner) {
    earlier.clear();
    session.emplace(owner.make_session());
    is_whole = false;
  }
  const std::int64_t kept = session->go_back(may_reuse ? usable(owner, prompt) : 0, earlier);
  std::erase_if(earlier, [&](const models::Session& one) { return one.length() > kept; });  // other tokens come there
  model = owner.weak_from_this();
  tokens.assign(prompt.begin(), prompt.begin() + kept);
  is_whole = false;
  return kept;
}

void PromptCache::State::keep_prompt() {
  earlier.clear();
  earlier.push_back(session->fork());
}

void PromptCache::State::close(const TokenIds& all) {
  tokens.assign(all.begin(), all.begin() + session->length());
  is_whole = true;
}

}  // namespace halfbyte
