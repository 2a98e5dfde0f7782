#include "models/chat/messages.h"

#include <string>

#include <nlohmann/json.hpp>

namespace halfbyte::models {
namespace {

std::optional<Speaker> role_of(const std::string& name) {
  if (name == "system") return Speaker::kSystem;
  if (name == "user") return Speaker::kUser;
  if (name == "assistant") return Speaker::kAssistant;
  return std::nullopt;
}

std::optional<Message> message_of(const nlohmann::json& json, bool is_first) {
  const bool has_both = json.is_object() && json.contains("role") && json.contains("content");
  if (!has_both || !json["role"].is_string() || !json["content"].is_string()) return std::nullopt;
  const auto role = role_of(json["role"]);
  if (!role || (*role == Speaker::kSystem && !is_first)) return std::nullopt;
  return Message{*role, json["content"]};
}

}  // namespace

std::optional<Conversation> messages_of(const nlohmann::json& messages) {
  if (!messages.is_array() || messages.empty()) return std::nullopt;
  Conversation out;
  for (const nlohmann::json& each : messages) {
    std::optional<Message> message = message_of(each, out.empty());
    if (!message) return std::nullopt;
    out.push_back(std::move(*message));
  }
  return out;
}

}  // namespace halfbyte::models
