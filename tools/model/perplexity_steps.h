// The steps of `perplexity` between its words and its result: for the verb and for Python's function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/evaluate.h>

#include "models/tokenizers/tokenizer.h"
#include "tools/cli/parse.h"
#include "tools/text/model_words.h"

namespace halfbyte::cli {

struct PerplexityWords {
  ModelWords model;
  std::vector<std::string> adapters = {};  // of the model, as --adapter takes them
  std::string against;                     // empty: nothing
  std::string against_dtype = "float32";
  std::int64_t context = 0;  // 0: 512, or what the models have room for
  std::int64_t chunks = 0;
  std::string windows = "prefixed";
  bool parses_special = false;
};

// What these words must be.
Check window_size();
Check window_count();
Check window_kind();

inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

struct MeasuredText {
  TokenIds tokens;
  models::SpecialNames special;  // that the text spells
};

// What is measured is text, whatever it spells, unless the words say otherwise.
MeasuredText measured_text(const PerplexityWords& words, const models::Tokenizer& tokenizer, const std::string& text);
// Errors: kNotFound without one.
std::unique_ptr<models::Tokenizer> wanted_tokenizer(const std::string& checkpoint);
// The original, or the checkpoint itself, in one policy that no pattern changes.
ModelWords reference_words(const PerplexityWords& words);
PerplexityOptions options_of(const PerplexityWords& words);
nlohmann::ordered_json json_of(const PerplexityResult& result, std::size_t special_names);

}  // namespace halfbyte::cli
