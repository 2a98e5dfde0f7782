// What a quantised model lost: perplexity, Kullback-Leibler divergence from the original and agreement on tokens, with
// confidence intervals and token by token. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <halfbyte/evaluate.h>

namespace halfbyte {

// A mean and its 95 % confidence interval: Student's over the means of windows, since tokens of one window are not
// independent. With one window low and high are the value.
struct Interval {
  double value = 0, low = 0, high = 0;
};

// One scored token. Log-probabilities are natural, of the token that the text has.
struct TokenScore {
  std::int64_t window = 0, position = 0;  // in the window, of the token that is predicted
  std::int64_t token = 0;
  std::int64_t choice = 0, original_choice = 0;  // the most likely token of each model
  double log_probability = 0, original_log_probability = 0;
  double divergence = 0;        // KL(original || model)
  std::int64_t shared_top = 0;  // of the original's kTopTokens most likely tokens, how many are among the model's
};
inline constexpr std::int64_t kTopTokens = 5;

// Quantiles are of all scored tokens.
struct Loss {
  Interval original_perplexity;
  Interval perplexity_ratio;  // model's by original's, compared token by token: narrower than either one's
  Interval kl_mean;           // of KL(original || model), natural logarithms
  double kl_median = 0, kl_p99 = 0, kl_p999 = 0, kl_largest = 0;
  Interval top1_agreement;  // share of tokens for which both have the same most likely one
  Interval top5_agreement;  // share of the original's five most likely tokens that are among the model's five
};

struct Accuracy {
  std::int64_t windows = 0, tokens = 0;  // scored
  bool was_stopped = false;              // before the last window
  Interval perplexity;
  std::optional<Loss> loss;        // with an original
  std::vector<TokenScore> scores;  // of all scored tokens, in the text's order
};

// As perplexity(), several windows at once, so that products run at the speed of matrices; of each model's logits no
// more than some positions exist at a time. Without an original: perplexity alone. Errors: as perplexity().
Accuracy evaluate(const models::CausalLM& model, const TokenIds& text, const TokenIds& prefix,
                  const PerplexityOptions& options = {}, const models::CausalLM* original = nullptr);

}  // namespace halfbyte
