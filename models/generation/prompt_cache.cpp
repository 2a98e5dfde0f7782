#include "models/generation/prompt_cache.h"

#include <algorithm>

namespace halfbyte {

PromptCache::PromptCache() : state_(std::make_unique<State>()) {}
PromptCache::~PromptCache() = default;
PromptCache::PromptCache(PromptCache&&) noexcept = default;
PromptCache& PromptCache::operator=(PromptCache&&) noexcept = default;
std::int64_t PromptCache::tokens() const noexcept { return static_cast<std::int64_t>(state_->tokens.size()); }
void PromptCache::clear() { *state_ = {}; }

namespace {

// A recurrent state may take as much memory as the keys and values of thousands of tokens.
constexpr std::size_t kMostEarlier = 3;

// Where frequencies depend on the sequence's length, keys of a short one do not serve a long one, nor the other way.
// All that longrope knows of a length is whether it is beyond the limit.
bool serves(const models::RopeConfig& rope, std::size_t one, std::size_t other) {
  const auto [shorter, longer] = std::minmax(one, other);
  const auto limit = static_cast<std::size_t>(rope.fixed_length());
  const bool are_both_long = rope.type == models::RopeType::kLongrope && shorter > limit;
  return limit == 0 || longer <= limit || are_both_long;
}

}  // namespace

std::int64_t PromptCache::State::usable(const models::ModelConfig& config, const TokenIds& prompt) const {
  if (!is_whole) return 0;
  // A prompt that was broken off was read as the beginning of all of it.
  const std::size_t length = std::max(tokens.size(), static_cast<std::size_t>(session->expected()));
  const auto is_served = [&](const models::RopeConfig& rope) { return serves(rope, length, prompt.size()); };
  if (!std::ranges::all_of(config.ropes, is_served)) return 0;
  const auto common = std::ranges::mismatch(tokens, prompt).in2 - prompt.begin();
  return std::min<std::int64_t>(common, static_cast<std::int64_t>(prompt.size()) - 1);
}

std::int64_t PromptCache::State::open(const models::StepModel& owner, const TokenIds& prompt, bool may_reuse) {
  const auto known = model.lock();
  if (!session || !known || known != owner.identity().lock()) {
    earlier.clear();
    session.emplace(owner.make_session());
    is_whole = false;
  }
  const std::int64_t common = may_reuse ? usable(owner.config(), prompt) : 0;
  const std::int64_t kept = session->go_back(common, earlier);
  std::erase_if(earlier, [&](const models::Session& one) { return one.length() > kept; });  // other tokens come there
  model = owner.identity();
  tokens.assign(prompt.begin(), prompt.begin() + kept);
  prompt_tokens = static_cast<std::int64_t>(prompt.size());
  branch = kept < common ? common : 0;
  is_whole = false;
  return kept;
}

std::int64_t PromptCache::State::most_a_pass(std::int64_t most) const {
  return branch > session->length() ? std::min(most, branch - session->length()) : most;
}

void PromptCache::State::keep_branch() {
  if (branch > 0 && session->length() == branch) keep_here();
}

void PromptCache::State::keep_prompt() { keep_here(); }

// They are there by length. The shortest is what most prompts begin with, the longest where a conversation goes on.
void PromptCache::State::keep_here() {
  earlier.push_back(session->fork());
  if (earlier.size() > kMostEarlier) earlier.erase(earlier.begin() + 1);
}

void PromptCache::State::forget_earlier() {
  earlier.clear();
  branch = 0;
}

void PromptCache::State::close(const TokenIds& all) {
  tokens.assign(all.begin(), all.begin() + session->length());
  is_whole = true;
}

std::optional<PromptCache::State::Kept> PromptCache::State::kept(bool prompt_only) const {
  if (!is_whole || tokens.empty()) return std::nullopt;
  const auto of_prompt = std::ranges::find(earlier, prompt_tokens, &models::Session::length);
  const bool is_cut = prompt_only && session->length() > prompt_tokens && of_prompt != earlier.end();
  Kept out{tokens, (is_cut ? *of_prompt : *session).fork(), {}};
  out.tokens.resize(static_cast<std::size_t>(out.session.length()));
  for (const models::Session& one : earlier) {
    if (one.length() < out.session.length() && one.length() < out.session.least()) out.earlier.push_back(one.fork());
  }
  return out;
}

}  // namespace halfbyte
