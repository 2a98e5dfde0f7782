#include "models/chat/chat_template.h"

#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/encode.h"
#include "models/chat/jinja_template.h"
#include "models/chat/messages.h"

namespace halfbyte::models {
namespace {

bool is_given(const nlohmann::ordered_json& json) { return !json.is_null() && !json.empty(); }

Conversation texts_of(const ChatInput& input, const FamilyTemplate& family) {
  const std::string what = "chat template " + std::string(family.name());
  const std::optional<ToolTurns>& tools = family.family->tools;
  if ((is_given(*input.tools) && !tools) || is_given(*input.documents) || is_given(*input.arguments))
    throw Error(ErrorCode::kUnsupported,
                what + ": knows no " + (tools ? "" : "tools, ") + "documents or switches; the checkpoint's own may");
  auto conversation = tools ? messages_with_tools(input, *tools) : messages_of(nlohmann::json(*input.messages));
  if (conversation) return *std::move(conversation);
  throw Error(ErrorCode::kUnsupported, what + ": knows texts of system, user and assistant alone" +
                                           (tools ? ", and tools" : "") + "; the checkpoint's own may know more");
}

}  // namespace

ChatTemplate::ChatTemplate(FamilyTemplate family) : kind_(std::move(family)) {}
ChatTemplate::ChatTemplate(std::shared_ptr<const JinjaTemplate> own) : kind_(std::move(own)) {}

std::string_view ChatTemplate::name() const noexcept { return family() ? family()->name() : "the checkpoint's own"; }

bool ChatTemplate::begins_with_line() const noexcept {
  if (const FamilyTemplate* row = family()) return row->family->begins_with_line;
  return std::get<1>(kind_)->begins_with_line();
}

std::vector<Segment> ChatTemplate::render(const ChatInput& input, const Tokenizer& tokenizer) const {
  if (const FamilyTemplate* row = family()) return row->render(texts_of(input, *row), input.asks_for_answer);
  return segments_of(std::get<1>(kind_)->render(input), tokenizer);
}

std::vector<Segment> ChatTemplate::render(const Conversation& conversation, const Tokenizer& tokenizer,
                                          bool asks_for_answer) const {
  if (const FamilyTemplate* row = family()) return row->render(conversation, asks_for_answer);
  ChatInput input = chat_input_of(conversation);
  input.asks_for_answer = asks_for_answer;
  return render(input, tokenizer);
}

TokenIds ChatTemplate::encode(const ChatInput& input, const Tokenizer& tokenizer) const {
  return encode_segments(render(input, tokenizer), tokenizer);
}

TokenIds ChatTemplate::encode(const Conversation& conversation, const Tokenizer& tokenizer,
                              bool asks_for_answer) const {
  return encode_segments(render(conversation, tokenizer, asks_for_answer), tokenizer);
}

TokenIds ChatTemplate::stop_tokens(const Tokenizer& tokenizer) const {
  return family() ? family()->stop_tokens(tokenizer) : std::get<1>(kind_)->stop_tokens(tokenizer);
}

}  // namespace halfbyte::models
