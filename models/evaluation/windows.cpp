#include "models/evaluation/windows.h"

#include <algorithm>
#include <string>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "models/architectures/architecture.h"

namespace halfbyte::models {
namespace {

Windows prefixed(const TokenIds& text, const TokenIds& prefix, std::int64_t context) {
  const std::int64_t stride = context - static_cast<std::int64_t>(prefix.size());
  return {text, prefix, context, stride, 0, context - context / 2, 0};
}

// Source: llama.cpp, tools/perplexity/perplexity.cpp.
Windows as_llama_cpp(const TokenIds& text, const TokenIds& prefix, std::int64_t context) {
  Windows out{prefix, prefix, context, context, static_cast<std::int64_t>(prefix.size()), context - context / 2 - 1, 0};
  out.tokens.insert(out.tokens.end(), text.begin(), text.end());
  return out;
}

void check_tokens(const CausalLM& model, const TokenIds& text) {
  const auto bad =
      std::ranges::find_if(text, [&](std::int64_t id) { return id < 0 || id >= model.config().vocab_size; });
  if (bad == text.end()) return;
  throw Error(ErrorCode::kInvalidArgument, "token id " + std::to_string(*bad) +
                                               " is beyond this model's vocabulary of " +
                                               std::to_string(model.config().vocab_size));
}

}  // namespace

Windows windows_for(const CausalLM& model, const TokenIds& text, const TokenIds& prefix,
                    const PerplexityOptions& options) {
  check_tokens(model, text);
  const std::int64_t context = options.context;
  if (context < 4 || context > model.config().max_position_embeddings) {
    throw Error(ErrorCode::kInvalidArgument, "a window of " + std::to_string(context) +
                                                 " tokens; this model takes 4 to " +
                                                 std::to_string(model.config().max_position_embeddings));
  }
  const auto room = context - static_cast<std::int64_t>(prefix.size());
  if (room < 2) {
    throw Error(ErrorCode::kInvalidArgument, "a window of " + std::to_string(context) + " tokens leaves " +
                                                 std::to_string(room) + " to the text after the tokenizer's prefix");
  }
  Windows out = (options.kind == WindowKind::kLlamaCpp ? as_llama_cpp : prefixed)(text, prefix, context);
  const std::int64_t available = static_cast<std::int64_t>(out.tokens.size()) / out.stride;
  if (available == 0) {
    throw Error(ErrorCode::kInvalidArgument, "the text has " + std::to_string(text.size()) +
                                                 " tokens; one window needs " + std::to_string(out.stride));
  }
  out.count = options.windows > 0 ? std::min(options.windows, available) : available;
  return out;
}

TokenIds Windows::window(std::int64_t index) const {
  const auto begin = tokens.begin() + index * stride;
  TokenIds out = beginning;
  out.insert(out.end(), begin + skipped, begin + stride);
  return out;
}

void check_vocabularies(const CausalLM& model, const CausalLM& reference) {
  if (reference.config().vocab_size == model.config().vocab_size) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the models' vocabularies differ: " + std::to_string(model.config().vocab_size) + " and " +
                  std::to_string(reference.config().vocab_size) + " tokens");
}

}  // namespace halfbyte::models
