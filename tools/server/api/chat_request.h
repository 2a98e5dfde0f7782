// POST /v1/chat/completions: what is asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/serving/constraints/schema.h"
#include "tools/server/api/answer_fields.h"
#include "tools/server/api/tool_call_forms.h"

namespace halfbyte::server {

struct ChatRequest {
  AnswerFields fields;
  models::ChatInput input;
  bool has_answers = false;      // the conversation has turns of the model's already
  std::vector<Tool> tools = {};  // of which calls in the answer are told apart from its text
  bool separates_thinking = true;
  std::shared_ptr<const serving::Schema> schema = {};  // that an answer must fulfil; null: none
};

// Errors: Problem 400, naming the field.
ChatRequest chat_request_of(const Body& body, const ServedModel& model);

}  // namespace halfbyte::server
