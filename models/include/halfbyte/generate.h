// What generate() takes and gives. Mirrors Meta's Llama generate(prompt_tokens, max_gen_len, temperature, top_p,
// logprobs, echo). Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace halfbyte {

using TokenIds = std::vector<std::int64_t>;

struct GenerateOptions {
  std::int64_t max_gen_len = 64;
  double temperature = 0.6;  // 0: the most likely token, always
  double top_p = 0.9;        // nucleus: the smallest set of tokens whose probability exceeds this
  bool logprobs = false;
  bool echo = false;          // results begin with the prompt
  std::uint64_t seed = 0;     // same seed, same text; each prompt has a stream of its own
  bool ignore_eos = false;    // do not stop at the model's end-of-text tokens
  TokenIds stop_tokens = {};  // stop at these too; a stop token is not part of the result
  // Called with (prompt's index, token) as tokens come; false ends that prompt's generation.
  std::function<bool(std::size_t prompt, std::int64_t token)> on_token = {};
};

struct Generation {
  TokenIds tokens;
  // Natural logarithms under the model's own distribution (temperature 1), one a token, when asked for; nothing for a
  // prompt's first token, which no other precedes.
  std::vector<std::optional<double>> logprobs;
};

}  // namespace halfbyte
