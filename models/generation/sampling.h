// How tokens are chosen, in the order in which it is applied, which is Hugging Face's. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace halfbyte::models {

struct Sampling {
  std::vector<std::pair<std::int64_t, float>> logit_bias = {};  // (token, what is added to its logit)
  double repetition_penalty = 1;  // logits of tokens that were seen: divided by it where positive, else multiplied
  // Taken from the logits of tokens that were chosen: once, and for each time. The prompt's do not count.
  double presence_penalty = 0, frequency_penalty = 0;
  double temperature = 0.6;  // 0: the most likely token, always; nothing of what follows
  std::int64_t top_k = 0;    // the so many most likely, and those as likely as the last of them; 0: all
  double top_p = 1;          // of those the smallest set that makes up this probability
  double min_p = 0;          // of those the ones at least this many times as likely as the most likely
};

}  // namespace halfbyte::models
