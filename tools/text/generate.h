// The verb `generate` of either program: words, prompts and output, around whatever runs the model. Needs no LibTorch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <halfbyte/generate.h>

#include "models/tokenizers/tokenizer.h"
#include "tools/cli/option_parser.h"
#include "tools/cli/verb.h"
#include "tools/text/declare_model.h"
#include "tools/text/prompt_cache_words.h"
#include "tools/text/prompts.h"
#include "tools/text/sampling_options.h"
#include "tools/text/speculation_words.h"

namespace halfbyte::cli {

struct GenerateWords {
  ModelWords model;
  std::vector<std::string> adapters;
  PromptWords prompts;
  SamplingWords sampling;
  SpeculationWords speculation;
  PromptCacheWords cache;
};

// A loaded model with what goes with it.
class TextMaker {
 public:
  virtual ~TextMaker() = default;
  virtual const models::ModelConfig& config() const = 0;
  virtual std::vector<Generation> generate(const std::vector<TokenIds>& prompts,
                                           const GenerateOptions& options) const = 0;
  virtual void save() {}  // what is kept of the prompt, once the text is made and shown
};

struct OpenedTextMaker {
  std::unique_ptr<TextMaker> model;  // null: it is for the program that has LibTorch
  std::string why_not = {};          // of null: "its logits are capped"
};

// Loads what the words name, and completes their options with it.
using OpenTextMaker = OpenedTextMaker (*)(GenerateWords& words, const models::Tokenizer* tokenizer,
                                          const CommonOptions& common);

struct TextWork {
  OpenTextMaker open;
  // It may be for the other program, which then is to read the input: opened before that.
  bool may_hand_over;
};

Action prepare_generate_with(OptionParser& parser, const CommonOptions& common, const TextWork& work);

}  // namespace halfbyte::cli
