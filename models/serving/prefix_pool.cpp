#include "models/serving/prefix_pool.h"

#include <algorithm>

namespace halfbyte::serving {
namespace {

// Fewer tokens are as soon read.
constexpr std::int64_t kLeastShared = 16;
constexpr std::size_t kMostTexts = 256;

}  // namespace

std::int64_t common_tokens(std::span<const std::int64_t> a, std::span<const std::int64_t> b) noexcept {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

std::optional<models::Session> beginning_of(const models::Session& session, std::span<const models::Session> snapshots,
                                            std::int64_t most) {
  const models::Session* best = nullptr;
  std::int64_t length = 0;
  const auto consider = [&](const models::Session& one) {
    const std::int64_t got = std::min(most, one.length());
    if ((got == one.length() || got >= one.least()) && got > length) best = &one, length = got;
  };
  consider(session);
  for (const models::Session& snapshot : snapshots) consider(snapshot);
  if (length < kLeastShared) return std::nullopt;
  models::Session out = best->fork();
  if (length < out.length()) out.cut(length);
  return out;
}

std::optional<PrefixPool::Found> PrefixPool::find(std::span<const std::int64_t> tokens, bool as_prompt_only) {
  const auto all = static_cast<std::int64_t>(tokens.size());
  if (fixed_length_ > 0 && all > fixed_length_) return std::nullopt;
  std::optional<Found> best;
  auto used = texts_.end();
  for (auto text = texts_.begin(); text != texts_.end(); ++text) {
    std::int64_t most = std::min(common_tokens(tokens, text->tokens), all - 1);
    if (as_prompt_only) most = std::min(most, text->as_prompt);
    if (best && most <= best->tokens) continue;
    std::optional<models::Session> session = beginning_of(text->session, text->snapshots, most);
    if (!session || (best && session->length() <= best->tokens)) continue;
    const std::int64_t length = session->length();
    best = Found{std::move(*session), length, std::min(length, text->as_prompt)};
    used = text;
  }
  if (used != texts_.end()) texts_.splice(texts_.begin(), texts_, used);
  return best;
}

// What begins another text need not be kept beside it.
void PrefixPool::keep(KeptText text) {
  if (text.session.length() < kLeastShared) return;
  if (fixed_length_ > 0 && std::max(text.session.length(), text.session.expected()) > fixed_length_) return;
  std::erase_if(texts_, [&](const KeptText& other) {
    const auto shared = common_tokens(other.tokens, text.tokens);
    return shared == static_cast<std::int64_t>(other.tokens.size()) && other.as_prompt <= text.as_prompt &&
           other.snapshots.empty() && text.session.least() == 0;
  });
  texts_.push_front(std::move(text));
  if (texts_.size() > kMostTexts) texts_.pop_back();
}

bool PrefixPool::drop_oldest() {
  if (texts_.empty()) return false;
  texts_.pop_back();
  return true;
}

void PrefixPool::visit_memory(const models::LayerState::MemoryVisitor& visit) const {
  for (const KeptText& text : texts_) {
    text.session.visit_memory(visit);
    for (const models::Session& snapshot : text.snapshots) snapshot.visit_memory(visit);
  }
}

}  // namespace halfbyte::serving
