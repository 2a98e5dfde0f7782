#include "tools/server/api/tokens.h"

#include <array>

namespace halfbyte::server {
namespace {

constexpr auto kTexts = std::to_array<std::string_view>({"text", "content", "prompt"});
constexpr auto kFields = std::to_array<std::string_view>(
    {"text", "content", "prompt", "add_special", "add_special_tokens", "with_pieces", "model"});
constexpr auto kBack = std::to_array<std::string_view>({"tokens", "model"});

}  // namespace

Json tokens_of_text(const Body& body, const ServedModel& model) {
  body.allow(kFields);
  std::optional<std::string> text;
  for (const std::string_view field : kTexts) {
    if (!text) text = body.string(field);
  }
  if (!text) refuse("text", "is missing");
  TokenIds ids;
  const bool has_special = body.boolean("add_special").value_or(body.boolean("add_special_tokens").value_or(true));
  if (has_special) ids = model.tokenizer->prefix();
  const TokenIds own = model.tokenizer->encode(*text);
  ids.insert(ids.end(), own.begin(), own.end());
  Json out = {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", model.context}};
  if (!body.boolean("with_pieces").value_or(false)) return out;
  out["pieces"] = Json::array();
  for (const std::int64_t id : ids) out["pieces"].push_back(model.tokenizer->piece(id));
  return out;
}

Json text_of_tokens(const Body& body, const ServedModel& model) {
  body.allow(kBack);
  const Json& tokens = body.at("tokens");
  if (!tokens.is_array()) refuse("tokens", "is " + kind_of(tokens) + "; expected a list of token ids");
  TokenIds ids;
  for (const Json& id : tokens) {
    const bool fits = id.is_number_integer() && id >= 0 && id < model.tokenizer->vocab_size();
    if (!fits)
      refuse("tokens", "has " + kind_of(id) + " in it; expected token ids of 0 to " +
                           std::to_string(model.tokenizer->vocab_size() - 1));
    ids.push_back(id.get<std::int64_t>());
  }
  const std::string text = model.tokenizer->decode(ids);
  return {{"text", text}, {"content", text}};
}

}  // namespace halfbyte::server
