// Conversations as chat interfaces write them in JSON.
#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/chat_template.h"

namespace halfbyte::models {

// Of [{"role": "system" (the first alone), "user" or "assistant", "content": text}], one at least; nothing: it is
// something else.
std::optional<Conversation> messages_of(const nlohmann::json& messages);

}  // namespace halfbyte::models
