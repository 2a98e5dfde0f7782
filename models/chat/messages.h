// Conversations as chat interfaces write them in JSON.
#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/conversation.h"

namespace halfbyte::models {

// Of [{"role": "system" (the first alone), "user" or "assistant", "content": text}], one at least; nothing: it is
// something else.
std::optional<Conversation> messages_of(const nlohmann::json& messages);

// Of a list of messages, or of an object as chat servers are sent it: {"messages", "tools", "documents",
// "chat_template_kwargs"}. Nothing: it is something else.
std::optional<ChatInput> chat_input_of(const nlohmann::ordered_json& json);

}  // namespace halfbyte::models
