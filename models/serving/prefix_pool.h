// Keys and values of texts that were served, for texts that begin alike.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include <halfbyte/generate.h>

#include "models/sessions/session.h"

namespace halfbyte::serving {

// A text whose keys and values are there.
struct KeptText {
  TokenIds tokens;         // as many as the session has
  std::int64_t as_prompt;  // of these the first, that are bit for bit those of a prompt that begins so
  models::Session session;
  std::vector<models::Session> snapshots = {};  // of beginnings to which the session cannot be cut
};

// As many of its first tokens as can be had, `most` at most, as a session of its own: of a session, or of its snapshots
// where it cannot be cut. Nothing: too few.
std::optional<models::Session> beginning_of(const models::Session& session, std::span<const models::Session> snapshots,
                                            std::int64_t most);

std::int64_t common_tokens(std::span<const std::int64_t> a, std::span<const std::int64_t> b) noexcept;

// One thread at a time.
class PrefixPool {
 public:
  // Whether keys and values of a text as long as `tokens` serve longer ones: not where positions are turned by factors
  // that depend on a text's length. 0: always.
  explicit PrefixPool(std::int64_t fixed_length) : fixed_length_(fixed_length) {}

  struct Found {
    models::Session session;
    std::int64_t tokens, as_prompt;
  };
  // The longest beginning of `tokens` that is kept, without its last token. `as_prompt_only`: what a prompt of its own
  // would have, bit for bit.
  std::optional<Found> find(std::span<const std::int64_t> tokens, bool as_prompt_only);
  void keep(KeptText text);
  // The one that was of no use for longest; false: nothing is kept.
  bool drop_oldest();
  void visit_memory(const models::LayerState::MemoryVisitor& visit) const;
  std::size_t size() const noexcept { return texts_.size(); }

 private:
  std::int64_t fixed_length_;
  std::list<KeptText> texts_;  // the one used last in front
};

}  // namespace halfbyte::serving
