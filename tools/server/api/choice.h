// One answer while its tokens come: what of it can be sent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/chat/answer_stream.h"
#include "models/tokenizers/stop_texts.h"
#include "tools/server/api/thinking.h"
#include "tools/server/api/tool_calls.h"

namespace halfbyte::server {

struct Delta {
  std::string thinking, text;
  std::vector<ToolCall> calls;
  bool is_empty() const noexcept { return thinking.empty() && text.empty() && calls.empty(); }
};

struct ChoiceOptions {
  bool is_chat = false;
  bool begins_with_line = false;    // as ChatTemplate says
  bool separates_thinking = false;  // in chats
  bool begins_thinking = false;     // the prompt ends within a thinking part
  std::vector<Tool> tools = {};     // whose calls are told apart; none: no calls are
  models::TokenIds context = {};    // of a completion: the prompt
  std::vector<std::string> stops = {};
};

class Choice {
 public:
  // `tokenizer` outlives it.
  Choice(const models::Tokenizer& tokenizer, const ChoiceOptions& options);
  Delta push(std::int64_t token);
  Delta finish();
  bool is_stopped() const noexcept { return stops_.is_found(); }  // by a stop text
  bool has_calls() const noexcept { return calls_ && calls_->has_calls(); }

 private:
  Delta split(const std::string& text);
  void add_answer(std::string text, Delta& out);
  const models::Tokenizer& tokenizer_;
  std::optional<models::AnswerStream> answer_;
  std::optional<models::StreamingDecoder> decoder_;
  models::StopTexts stops_;
  std::optional<ThinkingSplitter> thinking_;
  std::optional<ToolCallSplitter> calls_;
};

}  // namespace halfbyte::server
