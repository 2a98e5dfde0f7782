// What a chat template is given, and what it makes of it.
#pragma once

#include <string>
#include <vector>

#include "models/json/held.h"

namespace halfbyte::models {

enum class Speaker { kSystem, kUser, kAssistant, kTool };

struct Message {
  Speaker role;
  std::string text;
  std::string called = {};  // of an assistant's turn: the tool whose arguments the text is; empty: it is an answer
};
// A system text or none, then user and assistant in turn; a call and what a tool gave may stand before an answer.
using Conversation = std::vector<Message>;

// All that a checkpoint's own template may be given. null: none of it.
struct ChatInput {
  HeldOrderedJson messages = {};   // [{"role", "content", and what else the template reads: "tool_calls" ...}]
  HeldOrderedJson tools = {};      // a list of JSON schemas
  HeldOrderedJson documents = {};  // a list of {"title", "text"}
  HeldOrderedJson arguments = {};  // an object of the template's own switches: {"enable_thinking": false}
  bool asks_for_answer = true;     // it ends where the model's answer begins
};

ChatInput chat_input_of(const Conversation& conversation);

// A piece of a rendered conversation: a special token's spelling, or text.
struct Segment {
  std::string text;
  bool is_control = false;
  bool operator==(const Segment&) const = default;
};

}  // namespace halfbyte::models
