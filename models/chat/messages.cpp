#include "models/chat/messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace halfbyte::models {

std::optional<Speaker> speaker_of(const std::string& name) {
  if (name == "system") return Speaker::kSystem;
  if (name == "user") return Speaker::kUser;
  if (name == "assistant") return Speaker::kAssistant;
  return std::nullopt;
}

namespace {

std::optional<Message> message_of(const nlohmann::json& json, bool is_first) {
  const bool has_both = json.is_object() && json.contains("role") && json.contains("content");
  if (!has_both || !json["role"].is_string() || !json["content"].is_string()) return std::nullopt;
  const auto role = speaker_of(json["role"]);
  if (!role || (*role == Speaker::kSystem && !is_first)) return std::nullopt;
  return Message{*role, json["content"]};
}

}  // namespace

ChatInput chat_input_of(const Conversation& conversation) {
  constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};
  ChatInput out;
  *out.messages = nlohmann::ordered_json::array();
  for (const Message& message : conversation)
    out.messages->push_back({{"role", kRoles[static_cast<int>(message.role)]}, {"content", message.text}});
  return out;
}

std::optional<ChatInput> chat_input_of(const nlohmann::ordered_json& json) {
  const auto is_list = [](const nlohmann::ordered_json& value) { return value.is_array() && !value.empty(); };
  const auto is_message = [](const nlohmann::ordered_json& value) {
    return value.is_object() && value.contains("role") && value["role"].is_string();
  };
  ChatInput out;
  if (!json.is_object()) *out.messages = json;
  for (const auto& [name, member] :
       std::initializer_list<std::pair<const char*, HeldOrderedJson*>>{{"messages", &out.messages},
                                                                       {"tools", &out.tools},
                                                                       {"documents", &out.documents},
                                                                       {"chat_template_kwargs", &out.arguments}}) {
    if (json.is_object() && json.contains(name)) **member = json[name];
  }
  const bool is_one = is_list(*out.messages) && std::ranges::all_of(*out.messages, is_message) &&
                      (out.tools->is_null() || out.tools->is_array()) &&
                      (out.documents->is_null() || out.documents->is_array()) &&
                      (out.arguments->is_null() || out.arguments->is_object());
  return is_one ? std::optional(std::move(out)) : std::nullopt;
}

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
