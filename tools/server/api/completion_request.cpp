#include "tools/server/api/completion_request.h"

#include <algorithm>

namespace halfbyte::server {
namespace {

constexpr auto kCompletionFields = std::to_array<std::string_view>({"prompt", "echo", "logprobs", "best_of", "suffix"});

TokenIds encoded(const std::string& text, const models::Tokenizer& tokenizer) {
  TokenIds out = tokenizer.prefix();
  const TokenIds own = tokenizer.encode(text);
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

bool is_id(const Json& value) { return value.is_number_integer(); }

TokenIds ids_of(const Json& list, std::string_view field, std::int64_t vocabulary) {
  TokenIds out;
  for (const Json& id : list) {
    const bool fits = is_id(id) && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() < vocabulary;
    if (!fits)
      refuse(field, "has " + kind_of(id) + " in it; expected token ids of 0 to " + std::to_string(vocabulary - 1));
    out.push_back(id.get<std::int64_t>());
  }
  return out;
}

}  // namespace

std::vector<TokenIds> prompts_of(const Body& body, std::string_view field, const ServedModel& model) {
  const Json& prompt = body.at(field);
  const std::int64_t vocabulary = model.tokenizer->vocab_size();
  if (prompt.is_string()) return {encoded(prompt.get<std::string>(), *model.tokenizer)};
  if (!prompt.is_array() || prompt.empty())
    refuse(field, "is empty or no text; expected a string, a list of strings, or token ids");
  if (is_id(prompt.front())) return {ids_of(prompt, field, vocabulary)};
  std::vector<TokenIds> out;
  if (prompt.size() > 2048) refuse(field, "has more than 2048 texts");
  for (const Json& one : prompt) {
    if (!one.is_string() && !one.is_array())
      refuse(field, "has " + kind_of(one) + " in it; expected strings or lists of token ids");
    out.push_back(one.is_string() ? encoded(one.get<std::string>(), *model.tokenizer) : ids_of(one, field, vocabulary));
  }
  return out;
}

CompletionRequest completion_request_of(const Body& body, const ServedModel& model) {
  std::vector<std::string_view> known(kAnswerFields.begin(), kAnswerFields.end());
  known.insert(known.end(), kCompletionFields.begin(), kCompletionFields.end());
  body.allow(known);
  CompletionRequest out;
  out.fields = answer_fields_of(body, model);
  if (!out.fields.max_tokens) out.fields.max_tokens = 16;  // OpenAI's default here
  if (body.find("suffix")) refuse("suffix", "is not supported: this model completes texts at their end");
  const auto best = body.integer("best_of", 1, kMostAnswers);
  if (best && *best != out.fields.count) refuse("best_of", "is not supported where it differs from 'n'");
  if (const auto top = body.integer("logprobs", 0, 20)) out.fields.top_logprobs = static_cast<int>(*top);
  out.echo = body.boolean("echo").value_or(false);
  if (out.echo && out.fields.top_logprobs >= 0) refuse("echo", "is not supported together with 'logprobs'");
  out.prompts = prompts_of(body, "prompt", model);
  if (static_cast<std::int64_t>(out.prompts.size()) * out.fields.count > kMostAnswers)
    refuse("prompt", "asks for more than " + std::to_string(kMostAnswers) + " answers with 'n'");
  return out;
}

}  // namespace halfbyte::server
