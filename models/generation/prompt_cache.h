// What a PromptCache holds, and what of it serves another prompt. For generate().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <halfbyte/generate.h>

#include "models/generation/step_model.h"

namespace halfbyte {

struct PromptCache::State {
  std::weak_ptr<const void> model;  // StepModel::identity of whose keys and values they are
  std::optional<models::Session> session;
  TokenIds tokens;                       // whose keys and values the session has
  bool is_whole = false;                 // no call was broken off by an error
  std::vector<models::Session> earlier;  // to go back to, of a session that cannot be cut anywhere
  std::int64_t prompt_tokens = 0;        // of the last call
  // Where the prompt parts from the sequence before it, to which the session could not be cut: the next one may part
  // there too. 0: nowhere.
  std::int64_t branch = 0;

  // A session for `prompt` that has the first so many of its tokens already. `may_reuse`: false: none of them. Returns
  // how many; at least one is left to read.
  std::int64_t open(const models::StepModel& model, const TokenIds& prompt, bool may_reuse);
  // While the prompt is read: the tokens of the next pass, `most` at most, and what is done after it, so that a session
  // of the branch is kept.
  std::int64_t most_a_pass(std::int64_t most) const;
  void keep_branch();
  // The prompt has been read: a later one may go on from there.
  void keep_prompt();
  // What was kept of fewer tokens was turned otherwise than the session is from now on.
  void forget_earlier();
  // `all`: what the session has read, and what came after.
  void close(const TokenIds& all);

  // What a file is to hold of it: the sequence, or its beginning that was in the prompt.
  struct Kept {
    TokenIds tokens;
    models::Session session;               // of these tokens
    std::vector<models::Session> earlier;  // of fewer, to which that cannot be cut
  };
  // Nothing: no tokens, or a call was broken off by an error.
  std::optional<Kept> kept(bool prompt_only) const;

 private:
  void keep_here();
  std::int64_t usable(const models::ModelConfig& config, const TokenIds& prompt) const;
};

}  // namespace halfbyte
