// POST /v1/completions: what is asked for.
#pragma once

#include <vector>

#include "tools/server/api/answer_fields.h"

namespace halfbyte::server {

struct CompletionRequest {
  AnswerFields fields;
  std::vector<TokenIds> prompts;
  bool echo = false;
};

// Errors: Problem 400, naming the field.
CompletionRequest completion_request_of(const Body& body, const ServedModel& model);

// Of "prompt" or "input": a string, a list of strings, token ids, or a list of lists of them. A text gets what the
// checkpoint puts around texts. Errors: Problem 400.
std::vector<TokenIds> prompts_of(const Body& body, std::string_view field, const ServedModel& model);

}  // namespace halfbyte::server
