// Conversations with tools, as families' rows write them.
#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/messages.h"

namespace halfbyte::models {
namespace {

using Json = nlohmann::ordered_json;

// Of what strangers send: the bytes of arguments that come as a text, of a list of tools, and how deep both are nested.
constexpr std::size_t kMostArguments = 32 << 10, kMostTools = 256 << 10;
constexpr int kMostDepth = 64;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

// As Python writes it.
std::string python_of(const Json& value, int depth = 0) {
  if (depth > kMostDepth) refuse("a call's arguments are nested deeper than " + std::to_string(kMostDepth) + " levels");
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return text_of(value);
  std::string out;
  for (const auto& [key, item] : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += text_of(key) + ": ";
    out += python_of(item, depth + 1);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

std::string keywords_of(const Json& arguments) {
  std::string out;
  for (const auto& [key, item] : arguments.items()) out += (out.empty() ? "" : ", ") + key + "=" + python_of(item);
  return out;
}

// Nothing: it is none, or more than strangers may send.
std::optional<Json> object_in(const std::string& text) {
  if (text.size() > kMostArguments) return std::nullopt;
  int depth = 0;
  for (const char c : text) {  // brackets in strings count too: they only make it refuse sooner
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (depth > kMostDepth) return std::nullopt;
  }
  Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
}

// Nothing: it is no call of a function with an object, which may be spelt, as its arguments.
std::optional<Message> call_of(const Json& call) {
  const Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) return std::nullopt;
  Json arguments = function.value("arguments", Json::object());
  if (arguments.is_string()) {
    std::optional<Json> parsed = object_in(arguments.get<std::string>());
    if (!parsed) return std::nullopt;
    arguments = std::move(*parsed);
  }
  if (!arguments.is_object()) return std::nullopt;
  return Message{Speaker::kAssistant, keywords_of(arguments), function["name"]};
}

std::string list_of(const Json& tools) {
  Json out = Json::array();
  for (const Json& tool : tools) out.push_back(tool.is_object() && tool.contains("function") ? tool["function"] : tool);
  if (text_of(out).size() > kMostTools)
    refuse("the tools have more than " + std::to_string(kMostTools) + " bytes");  // and in lines many times as many
  return out.dump(4, ' ', false, Json::error_handler_t::replace);
}

bool add_calls(const Json& calls, Conversation& out) {
  if (!calls.is_array()) return false;
  for (const Json& each : calls) {
    std::optional<Message> call = call_of(each);
    if (!call) return false;
    out.push_back(std::move(*call));
  }
  return true;
}

bool add_message(const Json& json, Conversation& out) {
  const bool has_text = json.contains("content") && json["content"].is_string();
  const std::string text = has_text ? json["content"].get<std::string>() : "";
  const Json calls = json.value("tool_calls", Json(nullptr));
  if (json["role"] == "tool" || json["role"] == "observation")
    return has_text && (out.push_back({Speaker::kTool, text}), true);
  if (json["role"] == "assistant" && !calls.is_null()) {
    if (!text.empty()) out.push_back({Speaker::kAssistant, text});
    return add_calls(calls, out);
  }
  std::optional<Conversation> one = messages_of(nlohmann::json::array({nlohmann::json(json)}));
  if (!one || (one->front().role == Speaker::kSystem && !out.empty())) return false;
  out.push_back(std::move(one->front()));
  return true;
}

}  // namespace

std::optional<Conversation> messages_with_tools(const ChatInput& input, const ToolTurns& turns) {
  Conversation out;
  if (!input.messages->is_array()) return std::nullopt;
  for (const Json& each : *input.messages) {
    if (!each.is_object() || !each.contains("role") || !add_message(each, out)) return std::nullopt;
  }
  if (!input.tools->is_array() || input.tools->empty()) return out;
  const std::string offered = std::string(turns.intro) + "\n" + list_of(*input.tools);
  if (!out.empty() && out.front().role == Speaker::kSystem) {
    out.front().text += "\n" + offered;
  } else {
    out.insert(out.begin(), {Speaker::kSystem, offered});
  }
  return out;
}

}  // namespace halfbyte::models
