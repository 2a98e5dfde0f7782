// What a PromptCache holds, and what of it serves another prompt. For generate().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <halfbyte/causal_lm.h>

#include "models/modules/session.h"

namespace halfbyte {

struct PromptCache::State {
  std::weak_ptr<const torch::nn::Module> model;  // whose keys and values they are
  std::optional<models::Session> session;
  TokenIds tokens;                       // whose keys and values the session has
  bool is_whole = false;                 // no call was broken off by an error
  std::vector<models::Session> earlier;  // to go back to, of a session that cannot be cut anywhere

  // A session for `prompt` that has the first so many of its tokens already. `may_reuse`: false: none of them. Returns
  // how many; at least one is left to read.
  std::int64_t open(const models::CausalLM& model, const TokenIds& prompt, bool may_reuse);
  // The prompt has been read: a later one may go on from there.
  void keep_prompt();
  // `all`: what the session has read, and what came after.
  void close(const TokenIds& all);

 private:
  std::int64_t usable(const models::CausalLM& model, const TokenIds& prompt) const;
};

}  // namespace halfbyte
