// Evaluates a checkpoint against the one that it was made of: what `halfbyte evaluate` does, for host programs. Needs
// no LibTorch.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include <halfbyte/accuracy.h>
#include <halfbyte/layer_errors.h>
#include <halfbyte/load_options.h>

namespace halfbyte {

// Weights as they are stored, dequantised where they are packed, and everything computed in float32: what is measured
// is the weights alone, the same on every machine but for the last digits.
LoadOptions exact_loading();

struct EvaluationRequest {
  std::filesystem::path checkpoint;
  std::filesystem::path original = {};  // empty: none
  std::string text;                     // UTF-8
  LoadOptions loading = exact_loading();
  LoadOptions original_loading = exact_loading();
  // Tokens a window, the beginning-of-text token included; 0: 256, or what the models have room for.
  std::int64_t context = 0;
  std::int64_t windows = 0;  // 0: all that the text fills
  WindowKind kind = WindowKind::kPrefixed;
  // A file of the original's log-probabilities, 16 bits each. Where it exists, they are taken from it and the original
  // need not be there; else it is written, for the next comparison. Empty: none.
  std::filesystem::path logits = {};
  // Models that need more than this together run one after the other, with such a file among the temporary ones in
  // between. Units: bytes; 0: this machine's memory.
  std::uint64_t memory_limit = 0;
  std::int64_t worst_tokens = 20;  // of the largest divergences, how many to give
  bool wants_layers = false;       // errors of layers: needs both models in memory
  // Multiple-choice tasks, one JSON object a line: {"query", "choices", "gold"}, or as lm-evaluation-harness's data
  // sets call them. Empty: none. `tasks_name`: of the file, for messages.
  std::string tasks = {}, tasks_name = "tasks";
  bool parses_special = false;  // special tokens' names in the text are those tokens
  // Tokens run through the models; called several times a layer.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  std::stop_token stop = {};  // what was finished by then is the result
  // Told true before what cannot be stopped (a model is loaded), false after it.
  std::function<void(bool)> loading_now = {};
};

// A token on which both models differ much, in its text.
struct WorstToken {
  TokenScore score;
  std::string before, token, after;     // text: what led to it, what stands there, what follows
  std::string choice, original_choice;  // text of the most likely tokens
};

// Multiple-choice tasks. Each choice is scored by its log-likelihood after the query, `accuracy`, or by that divided by
// its characters, `normalised`: lm-evaluation-harness's acc and acc_norm.
struct ChoiceResult {
  std::int64_t tasks = 0;
  Interval accuracy, normalised;
  // With the original in memory. `agreement`: both choose the same, right or not.
  std::optional<Interval> original_accuracy, original_normalised, agreement;
};

struct Evaluation {
  Accuracy accuracy;
  std::vector<LayerError> layers;  // where they were asked for and both models were in memory
  std::optional<ChoiceResult> choices;
  std::vector<WorstToken> worst;     // largest divergence first
  int passes_over_text = 1;          // 2: the models did not run side by side
  std::string original = {};         // as it was named, or as the file of log-probabilities names it
  std::int64_t context = 0;          // tokens a window
  std::int64_t text_tokens = 0;      // that the text has
  std::size_t special_names = 0;     // names of special tokens that the text spells
  std::string special_example = {};  // one of them
};

// The text is split by the checkpoint's tokenizer, or by the original's where it has none. Errors: as load_low_bit and
// evaluate(); kNotFound without any tokenizer; kInvalidArgument where the two tokenizers split the text differently,
// naming the place, and where a file of log-probabilities is of another text, other windows or another original.
Evaluation evaluate_checkpoint(const EvaluationRequest& request);

}  // namespace halfbyte
