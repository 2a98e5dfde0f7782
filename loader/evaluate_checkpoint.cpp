#include <halfbyte/evaluate_checkpoint.h>

#include <algorithm>
#include <memory>

#include <halfbyte/load_low_bit.h>

#include "loader/evaluated_text.h"
#include "models/architectures/model_config.h"

namespace halfbyte {
namespace {

Model load(const std::filesystem::path& path, const LoadOptions& options, const EvaluationRequest& request) {
  if (request.loading_now) request.loading_now(true);
  Model model = load_low_bit(path, options);
  if (request.loading_now) request.loading_now(false);
  return model;
}

constexpr std::int64_t kUsualContext = 256;

PerplexityOptions options_of(const EvaluationRequest& request, std::int64_t context) {
  PerplexityOptions options;
  options.context = context;
  options.windows = request.windows;
  options.kind = request.kind;
  options.progress = request.progress;
  options.stop = request.stop;
  return options;
}

}  // namespace

LoadOptions exact_loading() {
  LoadOptions options;
  options.dtype = DtypePolicy::float32();
  options.compute = ComputeMode::kFloat;
  return options;
}

Evaluation evaluate_checkpoint(const EvaluationRequest& request) {
  Evaluation out;
  const EvaluatedText text = evaluated_text(request);
  out.text_tokens = static_cast<std::int64_t>(text.tokens.size());
  out.special_names = text.special.count;
  out.special_example = text.special.example;
  const Model model = load(request.checkpoint, request.loading, request);
  std::optional<Model> original;
  if (!request.original.empty()) original = load(request.original, request.original_loading, request);
  const auto room = [](const Model& of) { return of.config().max_position_embeddings; };
  out.context = request.context;
  if (out.context == 0) out.context = std::min(kUsualContext, room(model));
  if (request.context == 0 && original) out.context = std::min(out.context, room(*original));
  out.accuracy = evaluate(model.module(), text.tokens, text.tokenizer->prefix(), options_of(request, out.context),
                          original ? &original->module() : nullptr);
  return out;
}

}  // namespace halfbyte
