// Conversations as chat interfaces write them in JSON.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/chat_family.h"
#include "models/chat/conversation.h"

namespace halfbyte::models {

// "system", "user", "assistant"; nothing: another.
std::optional<Speaker> speaker_of(const std::string& role);

// Of [{"role": "system" (the first alone), "user" or "assistant", "content": text}], one at least; nothing: it is
// something else.
std::optional<Conversation> messages_of(const nlohmann::json& messages);

// The same of conversations in which tools are called: "assistant" may have "tool_calls", and "tool" says what came of
// one. The tools are listed in the system's text.
std::optional<Conversation> messages_with_tools(const ChatInput& input, const ToolTurns& turns);

// Of a list of messages, or of an object as chat servers are sent it: {"messages", "tools", "documents",
// "chat_template_kwargs"}. Nothing: it is something else.
std::optional<ChatInput> chat_input_of(const nlohmann::ordered_json& json);

}  // namespace halfbyte::models
