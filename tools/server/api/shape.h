// The JSON of answers, as OpenAI documents it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/serving/engine.h"
#include "tools/server/api/bounded_json.h"
#include "tools/server/api/choice.h"

namespace halfbyte::server {

// What all pieces of one answer say of it.
struct AnswerHead {
  bool is_chat = false;
  std::string id;
  std::int64_t created = 0;  // Unix time
  std::string model;
};

AnswerHead new_head(bool is_chat, const std::string& model);

struct Usage {
  std::int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
};

// Everything that one choice came to.
struct WholeChoice {
  std::int64_t index = 0;
  Delta all;
  std::string finish_reason;
  Json logprobs = nullptr;
};

Json whole_answer(const AnswerHead& head, const std::vector<WholeChoice>& choices, const Usage& usage);

// Server-sent events: "data: ...\n\n".
std::string event_of(const Json& json);
inline constexpr const char* kLastEvent = "data: [DONE]\n\n";

// One piece of a stream. `first_call`: the number of the first of the delta's calls.
struct Piece {
  std::int64_t index = 0;
  Delta delta = {};
  bool is_first = false;
  std::size_t first_call = 0;
  std::string finish_reason = {};  // empty: not yet
  Json logprobs = nullptr;
};
Json piece_of(const AnswerHead& head, const Piece& piece, bool includes_usage);
Json usage_piece(const AnswerHead& head, const Usage& usage);

// Of tokens that were chosen, in the endpoint's form. `offset`: of the first one's text, in characters, for
// completions.
Json logprobs_of(const models::Tokenizer& tokenizer, const std::vector<serving::ChosenToken>& tokens, bool is_chat,
                 std::int64_t offset = 0);

const char* finish_reason(serving::Outcome outcome, bool has_calls);

std::int64_t characters_of(const std::string& text);  // of UTF-8

// JSON that any reader takes: what is no UTF-8 becomes U+FFFD.
std::string text_of(const Json& json);

}  // namespace halfbyte::server
