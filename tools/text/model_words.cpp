#include "tools/text/model_words.h"

#include <algorithm>

#include "tools/cli/policy.h"

namespace halfbyte::cli {
namespace {

struct ComputeWord {
  const char* word;
  ComputeMode mode;
};
constexpr ComputeWord kComputeWords[] = {
    {"auto", ComputeMode::kAuto}, {"float", ComputeMode::kFloat}, {"int8", ComputeMode::kInt8}};

ComputeMode parse_compute(const std::string& word) {
  return std::ranges::find(kComputeWords, word, [](const ComputeWord& row) { return std::string(row.word); })->mode;
}

}  // namespace

std::vector<std::string> compute_words() {
  std::vector<std::string> words;
  for (const ComputeWord& row : kComputeWords) words.emplace_back(row.word);
  return words;
}

LoadOptions load_options(const ModelWords& words) {
  LoadOptions options;
  options.dtype = DtypePolicy::parse(words.dtype);
  options.keep_float32 = words.keep_float32;
  options.overrides = parse_overrides(words.dtype_for);
  options.device = Device::parse(words.device);
  options.compute = parse_compute(words.compute);
  if (words.key_values == "int8") options.key_values = KeyValues::kInt8;
  if (words.verify) options.verify = Verification::kHashes;
  return options;
}

std::unique_ptr<models::Tokenizer> tokenizer_of(const std::string& checkpoint, files::WeightsAre weights) {
  return models::load_tokenizer(files::TokenizerDirectory(checkpoint, weights).path());
}

}  // namespace halfbyte::cli
