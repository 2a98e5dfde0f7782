#include "tools/model/perplexity_steps.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "loader/files/checkpoint.h"
#include "tools/cli/no_tokenizer.h"

namespace halfbyte::cli {
namespace {

constexpr std::int64_t kUsualContext = 512;
constexpr const char* kLlamaCppWindows = "llama.cpp";

// What config.json leaves room for; whether it can be run at all is the loader's to say.
std::int64_t room_of(const std::string& checkpoint) {
  const files::Checkpoint opened = files::open_checkpoint(checkpoint);
  if (!opened.architecture) return kUsualContext;
  return opened.model_config().max_position_embeddings;
}

std::int64_t context_of(const PerplexityWords& words) {
  if (words.context > 0) return words.context;
  const std::int64_t room = std::min(kUsualContext, room_of(words.model.checkpoint));
  return words.against.empty() ? room : std::min(room, room_of(words.against));
}

}  // namespace

Check window_size() { return whole_number(4, 1'000'000'000); }

Check window_count() { return whole_number(0, 1'000'000'000); }

Check window_kind() { return one_of({"prefixed", kLlamaCppWindows}); }

MeasuredText measured_text(const PerplexityWords& words, const models::Tokenizer& tokenizer, const std::string& text) {
  TokenIds parsed = tokenizer.encode(text, models::SpecialTokens::kParse);
  TokenIds as_text = tokenizer.encode(text, models::SpecialTokens::kAsText);
  models::SpecialNames names = models::special_names(tokenizer, parsed, as_text);
  return {words.parses_special ? std::move(parsed) : std::move(as_text), std::move(names)};
}

std::unique_ptr<models::Tokenizer> wanted_tokenizer(const std::string& checkpoint) {
  if (auto tokenizer = tokenizer_of(checkpoint)) return tokenizer;
  fail_no_tokenizer(checkpoint, "copy it from the original checkpoint");
}

ModelWords reference_words(const PerplexityWords& words) {
  ModelWords other = words.model;
  if (!words.against.empty()) other.checkpoint = words.against;
  other.dtype = words.against_dtype;
  other.key_values = "auto";
  other.compute = "float";
  other.keep_float32.clear();
  other.dtype_for.clear();
  return other;
}

PerplexityOptions options_of(const PerplexityWords& words) {
  PerplexityOptions options;
  options.context = context_of(words);
  options.windows = words.chunks;
  if (words.windows == kLlamaCppWindows) options.kind = WindowKind::kLlamaCpp;
  return options;
}

nlohmann::ordered_json json_of(const PerplexityResult& result, std::size_t special_names) {
  nlohmann::ordered_json json = {{"perplexity", result.perplexity},
                                 {"tokens", result.tokens},
                                 {"special_names", special_names},
                                 {"stopped", result.was_stopped}};
  if (!result.divergence) return json;
  json["reference_perplexity"] = *result.reference_perplexity;
  json["kl_mean"] = result.divergence->kl_mean;
  json["kl_p99"] = result.divergence->kl_p99;
  json["top1_agreement"] = result.divergence->top1_agreement;
  json["max_logit_difference"] = result.divergence->max_logit_difference;
  return json;
}

}  // namespace halfbyte::cli
