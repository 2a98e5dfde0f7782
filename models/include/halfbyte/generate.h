// What generate() takes and gives. Mirrors Meta's Llama generate(prompt_tokens, max_gen_len, temperature, top_p,
// logprobs, echo), with more ways of choosing tokens that have Hugging Face's names, meaning and order. Needs no
// LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

namespace halfbyte {

namespace models {
class CausalLM;
}

using TokenIds = std::vector<std::int64_t>;

// Keys and values of one sequence, kept from one generate() to the next: a prompt that begins as the sequence did costs
// its other tokens only. Gives what a call without it gives, but for the rounding of products in passes of other sizes.
// One call at a time; the memory goes with it. Another model than the last call's begins anew.
class PromptCache {
 public:
  PromptCache();
  ~PromptCache();
  PromptCache(PromptCache&&) noexcept;
  PromptCache& operator=(PromptCache&&) noexcept;
  std::int64_t tokens() const noexcept;  // that are held
  void clear();

  struct State;  // for generate() alone
  State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct GenerateOptions {
  std::int64_t max_gen_len = 64;
  double temperature = 0.6;  // 0: the most likely token, always
  double top_p = 0.9;        // nucleus: the smallest set of tokens whose probability exceeds this
  std::int64_t top_k = 0;    // before top_p: the so many most likely tokens, and those as likely as the last; 0: all
  double min_p = 0;          // after top_p: tokens at least this many times as likely as the most likely one
  // Before everything else, also at temperature 0: the logit of each token of the prompt and of what came of it is
  // divided by this where it is positive, else multiplied. 1: none; more: fewer repetitions.
  double repetition_penalty = 1;
  bool logprobs = false;
  bool echo = false;          // results begin with the prompt
  std::uint64_t seed = 0;     // same seed, same text; each prompt has a stream of its own
  bool ignore_eos = false;    // do not stop at the model's end-of-text tokens
  TokenIds stop_tokens = {};  // stop at these too; a stop token is not part of the result
  // Called with (prompt's index, token) as tokens come; false ends that prompt's generation.
  std::function<bool(std::size_t prompt, std::int64_t token)> on_token = {};
  // Asked after that: true ends that prompt's generation as a stop token does, but the token stays in the result. For
  // texts that end generation, which tokens alone do not show.
  std::function<bool(std::size_t prompt, std::int64_t token)> is_end = {};
  // Called as prompts are read: how many of their tokens were, of all that must be. From the calling thread. It cannot
  // use a model that ranks run, and what it throws then waits for the end of its step.
  std::function<void(std::int64_t done, std::int64_t total)> on_prompt = {};
  std::stop_token stop = {};     // asked several times a layer of every pass; ends all prompts
  PromptCache* cache = nullptr;  // for a single prompt; outlives the call
  // Speculation: tokens are guessed, several are verified in one pass of the model, and those that are what it chooses
  // are kept; so the text is the one without, and comes sooner where guesses are often right. Guessing ends by itself
  // where it does not pay, where several prompts are being continued, and in models with recurrent states.
  bool lookup = false;                      // by what followed the same tokens before, in the prompt or what came of it
  const models::CausalLM* draft = nullptr;  // by a smaller model with the same tokenizer; outlives the call
};

// kStop: a stop token. kLength: max_gen_len. kContext: the model's context is full. kCancelled: the caller said so.
enum class FinishReason { kStop, kLength, kContext, kCancelled };

struct Generation {
  TokenIds tokens;
  // Natural logarithms under the model's own distribution (temperature 1), one a token, when asked for; nothing for a
  // prompt's first token, which no other precedes.
  std::vector<std::optional<double>> logprobs;
  FinishReason finish_reason = FinishReason::kLength;
  std::int64_t cached_tokens = 0;   // of the prompt, that options.cache had
  std::int64_t guessed_tokens = 0;  // that were verified
  std::int64_t right_guesses = 0;   // of them
};

}  // namespace halfbyte
