#include "models/generation/lookup.h"

#include <algorithm>

namespace halfbyte::models {
namespace {

std::uint64_t hash_of(std::span<const std::int64_t> run) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a, of whole tokens
  for (const std::int64_t token : run) hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

// All runs but those that end with the last token, which has no successor yet.
void Lookup::index(std::span<const std::int64_t> tokens) {
  for (; indexed_ + 1 < tokens.size(); ++indexed_) {
    const std::size_t end = indexed_ + 1;
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      if (end >= kLengths[i]) ends_[i][hash_of(tokens.subspan(end - kLengths[i], kLengths[i]))] = end;
    }
  }
}

Lookup::Guess Lookup::guess(std::span<const std::int64_t> tokens, std::size_t most) {
  index(tokens);
  for (std::size_t i = 0; i < kLengths.size() && most > 0; ++i) {
    if (tokens.size() <= kLengths[i]) continue;
    const auto last = tokens.last(kLengths[i]);
    const auto found = ends_[i].find(hash_of(last));
    if (found == ends_[i].end()) continue;
    const std::size_t end = found->second;
    if (!std::ranges::equal(last, tokens.subspan(end - kLengths[i], kLengths[i]))) continue;  // another run's hash
    Guess out{{}, i};
    while (out.tokens.size() < most) {  // a text that repeats itself goes on in what was guessed
      const std::size_t at = end + out.tokens.size();
      out.tokens.push_back(at < tokens.size() ? tokens[at] : out.tokens[at - tokens.size()]);
    }
    return out;
  }
  return {};
}

}  // namespace halfbyte::models
