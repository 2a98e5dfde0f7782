#include "tools/server/api/shape.h"

#include <chrono>
#include <random>

namespace halfbyte::server {
namespace {

std::string random_hex(std::size_t digits) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < digits; ++i) out += kDigits[random() % 16];
  return out;
}

Json calls_json(const std::vector<ToolCall>& calls, std::optional<std::size_t> first_index) {
  Json out = Json::array();
  for (const ToolCall& call : calls) {
    Json one = Json::object();
    if (first_index) one["index"] = *first_index + out.size();
    one["id"] = "call_" + random_hex(24);
    one["type"] = "function";
    one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    out.push_back(std::move(one));
  }
  return out;
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.tokens},
          {"total_tokens", usage.prompt_tokens + usage.tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json head_json(const AnswerHead& head, bool is_piece) {
  const char* const object = !head.is_chat ? "text_completion" : is_piece ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

Json message_of(const Delta& all) {
  Json out = {{"role", "assistant"}, {"content", all.text}};
  if (all.text.empty() && !all.calls.empty()) out["content"] = nullptr;
  if (!all.thinking.empty()) out["reasoning_content"] = all.thinking;
  if (!all.calls.empty()) out["tool_calls"] = calls_json(all.calls, std::nullopt);
  out["refusal"] = nullptr;
  return out;
}

Json delta_of(const Piece& piece) {
  Json out = Json::object();
  if (piece.is_first) out["role"] = "assistant";
  if (piece.is_first || !piece.delta.text.empty()) out["content"] = piece.delta.text;
  if (!piece.delta.thinking.empty()) out["reasoning_content"] = piece.delta.thinking;
  if (!piece.delta.calls.empty()) out["tool_calls"] = calls_json(piece.delta.calls, piece.first_call);
  return out;
}

// As it stands behind another token, where decoders do not trim it.
std::string token_text(const models::Tokenizer& tokenizer, std::int64_t token) {
  const std::string twice = tokenizer.decode({token, token}, false), once = tokenizer.decode({token}, false);
  return twice.size() > once.size() ? twice.substr(once.size()) : once;
}

Json bytes_of(const std::string& text) {
  Json out = Json::array();
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

Json chat_entry(const std::string& text, double logprob) {
  return {{"token", text}, {"logprob", logprob}, {"bytes", bytes_of(text)}};
}

Json chat_logprobs(const models::Tokenizer& tokenizer, const std::vector<serving::ChosenToken>& tokens) {
  Json content = Json::array();
  for (const serving::ChosenToken& chosen : tokens) {
    Json entry = chat_entry(token_text(tokenizer, chosen.token), chosen.logprob.value_or(0));
    entry["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : chosen.likeliest)
      entry["top_logprobs"].push_back(chat_entry(token_text(tokenizer, token), logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const models::Tokenizer& tokenizer, const std::vector<serving::ChosenToken>& tokens,
                         std::int64_t offset) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const serving::ChosenToken& chosen : tokens) {
    const std::string text = token_text(tokenizer, chosen.token);
    out["tokens"].push_back(text);
    out["token_logprobs"].push_back(chosen.logprob.value_or(0));
    Json top = Json::object();
    for (const auto& [token, logprob] : chosen.likeliest) top[token_text(tokenizer, token)] = logprob;
    out["top_logprobs"].push_back(top.empty() ? Json(nullptr) : std::move(top));
    out["text_offset"].push_back(offset);
    offset += characters_of(text);
  }
  return out;
}

}  // namespace

std::int64_t characters_of(const std::string& text) {
  std::int64_t out = 0;
  for (const char c : text) out += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return out;
}

AnswerHead new_head(bool is_chat, const std::string& model) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {is_chat, (is_chat ? "chatcmpl-" : "cmpl-") + random_hex(24),
          std::chrono::duration_cast<std::chrono::seconds>(now).count(), model};
}

Json whole_answer(const AnswerHead& head, const std::vector<WholeChoice>& choices, const Usage& usage) {
  Json out = head_json(head, false);
  out["choices"] = Json::array();
  for (const WholeChoice& choice : choices) {
    Json one = {{"index", choice.index}};
    if (head.is_chat) {
      one["message"] = message_of(choice.all);
    } else {
      one["text"] = choice.all.text;
    }
    one["logprobs"] = choice.logprobs;
    one["finish_reason"] = choice.finish_reason;
    out["choices"].push_back(std::move(one));
  }
  out["usage"] = usage_json(usage);
  return out;
}

Json piece_of(const AnswerHead& head, const Piece& piece, bool includes_usage) {
  Json out = head_json(head, true);
  Json one = {{"index", piece.index}};
  if (head.is_chat) {
    one["delta"] = delta_of(piece);
  } else {
    one["text"] = piece.delta.text;
  }
  one["logprobs"] = piece.logprobs;
  one["finish_reason"] = piece.finish_reason.empty() ? Json(nullptr) : Json(piece.finish_reason);
  out["choices"] = Json::array({std::move(one)});
  if (includes_usage) out["usage"] = nullptr;
  return out;
}

Json usage_piece(const AnswerHead& head, const Usage& usage) {
  Json out = head_json(head, true);
  out["choices"] = Json::array();
  out["usage"] = usage_json(usage);
  return out;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string event_of(const Json& json) { return "data: " + text_of(json) + "\n\n"; }

Json logprobs_of(const models::Tokenizer& tokenizer, const std::vector<serving::ChosenToken>& tokens, bool is_chat,
                 std::int64_t offset) {
  return is_chat ? chat_logprobs(tokenizer, tokens) : completion_logprobs(tokenizer, tokens, offset);
}

const char* finish_reason(serving::Outcome outcome, bool has_calls) {
  using enum serving::Outcome;
  if (outcome == kLength || outcome == kContext) return "length";
  return has_calls ? "tool_calls" : "stop";
}

}  // namespace halfbyte::server
