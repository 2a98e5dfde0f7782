// How well a model predicts a text, and how far it is from another model: perplexity and Kullback-Leibler divergence.
// Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>

#include <halfbyte/generate.h>

namespace halfbyte {

namespace models {
class CausalLM;
}

// Which tokens a window holds, and which of them are scored.
enum class WindowKind : std::uint8_t {
  kPrefixed,  // the tokenizer's prefix, then text; the second half is scored
  // What llama.cpp's llama-perplexity runs: prefix and text are cut up as one, the first token of each window is then
  // overwritten by the prefix, and of the second half all but its first token is scored.
  kLlamaCpp,
};

struct PerplexityOptions {
  std::int64_t context = 512;  // tokens a window, the beginning-of-text token included
  std::int64_t windows = 0;    // 0: all that the text fills
  WindowKind kind = WindowKind::kPrefixed;
  // Tokens run through the models, the reference's too; called several times a pass.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  std::stop_token stop = {};  // asked several times a layer; what was finished by then is the result
};

struct Divergence {
  double kl_mean = 0;               // of KL(reference || model) over the scored tokens, natural logarithms
  double kl_p99 = 0;                // 99th percentile
  double top1_agreement = 0;        // share of tokens for which both have the same most likely one
  double max_logit_difference = 0;  // of any logit of the scored tokens, relative to the reference's largest
};

struct PerplexityResult {
  double perplexity = 0;
  std::int64_t tokens = 0;   // scored
  std::int64_t windows = 0;  // scored
  bool was_stopped = false;  // before the last window
  double tokens_per_s = 0;   // run through the model, scored or not, the reference's time left out
  std::optional<double> reference_perplexity;
  std::optional<Divergence> divergence;
};

// Windows of `context` tokens, one after another. `prefix` is the tokenizer's: beginning-of-text or nothing. With a
// reference both models run window by window, and no more than one window's logits of each exist at a time. Errors:
// kInvalidArgument when the text does not fill one window, a window exceeds either model's context, or the vocabularies
// differ; kInterrupted when stopped before a window was finished; kContract and kCorrupt as CausalLM::hidden, never
// NaN; BackendError where LibTorch refuses.
PerplexityResult perplexity(const models::CausalLM& model, const TokenIds& text, const TokenIds& prefix,
                            const PerplexityOptions& options = {}, const models::CausalLM* reference = nullptr);

}  // namespace halfbyte
