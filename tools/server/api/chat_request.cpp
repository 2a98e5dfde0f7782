#include "tools/server/api/chat_request.h"

#include <algorithm>
#include <vector>

namespace halfbyte::server {
namespace {

constexpr auto kChatFields =
    std::to_array<std::string_view>({"messages", "tools", "tool_choice", "parallel_tool_calls", "response_format",
                                     "logprobs", "top_logprobs", "max_completion_tokens", "chat_template_kwargs",
                                     "documents", "reasoning_effort", "modalities", "separate_reasoning", "verbosity"});

constexpr std::size_t kMostMessages = 4096, kMostSchemaBytes = 256 << 10;

struct RoleRow {
  std::string_view name;
  std::string_view as;  // what templates call it
};
constexpr RoleRow kRoles[] = {{"system", "system"},       {"developer", "system"}, {"user", "user"},
                              {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"}};

std::string place_of(std::size_t index) { return "messages[" + std::to_string(index) + "]"; }

// A string, or a list of parts that are texts.
Json text_of(const Json& content, const std::string& place) {
  if (content.is_string() || content.is_null()) return content.is_null() ? Json("") : content;
  if (!content.is_array())
    refuse(place + ".content", "is " + kind_of(content) + "; expected a string or a list of parts");
  std::string all;
  for (const Json& part : content) {
    const bool is_part = part.is_object() && part.contains("type") && part["type"].is_string();
    if (!is_part) refuse(place + ".content", "has a part without a 'type'");
    const auto type = part["type"].get<std::string>();
    if (type != "text" && type != "refusal")
      refuse(place + ".content", "has a part of type '" + type.substr(0, 40) + "'; this model reads text alone");
    if (!part.contains(type) || !part[type].is_string())
      refuse(place + ".content", "has a part without its '" + type + "'");
    all += part[type].get<std::string>();
  }
  return all;
}

// Templates want the arguments of a call as an object; clients send them as its text.
Json calls_of(const Json& calls, const std::string& place) {
  if (!calls.is_array()) refuse(place + ".tool_calls", "is " + kind_of(calls) + "; expected a list");
  Json out = calls;
  for (Json& call : out) {
    const bool is_call = call.is_object() && call.contains("function") && call["function"].is_object() &&
                         call["function"].contains("name") && call["function"]["name"].is_string();
    if (!is_call) refuse(place + ".tool_calls", "has a call without a function's name");
    Json& function = call["function"];
    if (!function.contains("arguments")) function["arguments"] = Json::object();
    if (!function["arguments"].is_string()) continue;
    std::optional<Json> arguments = parsed_json(function["arguments"].get<std::string>());
    if (arguments && arguments->is_object()) function["arguments"] = std::move(*arguments);
  }
  return out;
}

Json message_of(const Json& message, std::size_t index) {
  const std::string place = place_of(index);
  if (!message.is_object()) refuse(place, "is " + kind_of(message) + "; expected an object");
  if (!message.contains("role") || !message["role"].is_string()) refuse(place + ".role", "is missing");
  const auto role = message["role"].get<std::string>();
  const auto* const row = std::ranges::find(kRoles, role, &RoleRow::name);
  if (row == std::end(kRoles))
    refuse(place + ".role", "is '" + role.substr(0, 40) + "'; expected system, developer, user, assistant or tool");
  Json out = message;
  out["role"] = row->as;
  const bool has_calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
  if (!message.contains("content") && !has_calls) refuse(place + ".content", "is missing");
  out["content"] = text_of(message.value("content", Json(nullptr)), place);
  if (has_calls) out["tool_calls"] = calls_of(message["tool_calls"], place);
  return out;
}

Json messages_of(const Body& body) {
  const Json& messages = body.at("messages");
  if (!messages.is_array() || messages.empty())
    refuse("messages", messages.is_array() ? "is empty" : "is " + kind_of(messages) + "; expected a list");
  if (messages.size() > kMostMessages)
    refuse("messages", "has more than " + std::to_string(kMostMessages) + " messages");
  Json out = Json::array();
  for (const Json& message : messages) out.push_back(message_of(message, out.size()));
  return out;
}

void check_tools(const Json& tools) {
  if (!tools.is_array()) refuse("tools", "is " + kind_of(tools) + "; expected a list");
  for (const Json& tool : tools) {
    const bool is_tool = tool.is_object() && tool.contains("function") && tool["function"].is_object() &&
                         tool["function"].contains("name") && tool["function"]["name"].is_string();
    if (!is_tool) refuse("tools", "has an entry that is no {\"type\": \"function\", \"function\": {\"name\": ...}}");
  }
}

// "tool_choice", and the name that it asks for.
struct ToolChoice {
  bool allows = true, forces = false;
  std::string name = {};
};

ToolChoice tool_choice_of(const Body& body) {
  const Json* const choice = body.find("tool_choice");
  if (!choice || *choice == "auto") return {};
  if (*choice == "none") return {.allows = false};
  if (*choice == "required") return {.forces = true};
  const bool has_name = choice->is_object() && choice->contains("function") && (*choice)["function"].is_object() &&
                        (*choice)["function"].contains("name") && (*choice)["function"]["name"].is_string();
  if (!has_name)
    refuse("tool_choice", "is none of auto, none, required and {\"type\": \"function\", \"function\": {\"name\"}}");
  return {.forces = true, .name = (*choice)["function"]["name"]};
}

// A call of one of the tools, as JSON.
Json call_schema(const Json& tools, const std::string& name) {
  Json calls = Json::array();
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    if (!name.empty() && function["name"] != name) continue;
    Json arguments = function.value("parameters", Json::object());
    if (arguments.empty()) arguments = {{"type", "object"}};
    const Json parts = {{"name", {{"const", function["name"]}}}, {"arguments", arguments}};
    calls.push_back({{"type", "object"}, {"properties", parts}, {"required", {"name", "arguments"}}});
  }
  if (calls.empty()) refuse("tool_choice", "names no tool of 'tools'");
  return {{"anyOf", std::move(calls)}};
}

// Whether a string may be its value, as pydantic's optional ones have it too.
bool takes_text(const Json& schema, int depth = 0) {
  if (!schema.is_object() || depth > 4) return false;
  const Json type = schema.value("type", Json(nullptr));
  const auto is_string = [](const Json& one) { return one == "string"; };
  if (is_string(type) || (type.is_array() && std::ranges::any_of(type, is_string))) return true;
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!schema.contains(key) || !schema[key].is_array()) continue;
    if (std::ranges::any_of(schema[key], [&](const Json& one) { return takes_text(one, depth + 1); })) return true;
  }
  const Json values = type.is_null() ? schema.value("enum", Json(nullptr)) : Json(nullptr);
  return values.is_array() && std::ranges::any_of(values, [](const Json& one) { return one.is_string(); });
}

Tool tool_of(const Json& function) {
  Tool out{function["name"]};
  const Json parameters = function.value("parameters", Json(nullptr));
  if (!parameters.is_object() || !parameters.contains("properties")) return out;
  for (const auto& [key, schema] : parameters["properties"].items()) {
    if (takes_text(schema)) out.texts.push_back(key);
  }
  return out;
}

// Those that the model may call, and that it must where "tool_choice" says so.
void read_tools(const Body& body, ChatRequest& out) {
  const Json* const tools = body.find("tools");
  const ToolChoice choice = tool_choice_of(body);
  if (tools) check_tools(*tools);
  const bool has_tools = tools && !tools->empty();
  if (choice.forces && !has_tools) refuse("tool_choice", "asks for a call, but there are no 'tools'");
  if (!has_tools || !choice.allows) return;
  out.input.tools = *tools;
  if (out.schema && !choice.forces) return;  // the answer is what it asks for
  for (const Json& tool : *tools) out.tools.push_back(tool_of(tool["function"]));
  if (!choice.forces) return;
  if (out.schema) refuse("tool_choice", "asks for a call, which cannot be of a 'response_format' too");
  if (tools->dump().size() > kMostSchemaBytes)
    refuse("tools", "has more than " + std::to_string(kMostSchemaBytes) + " bytes");
  try {
    out.schema = std::make_shared<const serving::Schema>(call_schema(*tools, choice.name));
  } catch (const Error& error) {
    throw Problem(400, error.what(), "tools");
  }
}

// {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name", "schema"}}.
std::shared_ptr<const serving::Schema> schema_of(const Body& body) {
  constexpr const char* kField = "response_format";
  const Json* const format = body.find(kField);
  if (!format) return nullptr;
  if (!format->is_object() || !format->contains("type")) refuse(kField, "has no 'type'");
  const Json& type = (*format)["type"];
  if (type == "text") return nullptr;
  if (type == "json_object") return serving::Schema::any_object();
  if (type != "json_schema") refuse(kField, "has a 'type' other than text, json_object and json_schema");
  const Json own = format->value("json_schema", Json(nullptr));
  if (!own.is_object() || !own.contains("schema")) refuse(kField, "has no 'json_schema' with a 'schema' in it");
  if (own["schema"].dump().size() > kMostSchemaBytes)
    refuse(kField, "has a schema of more than " + std::to_string(kMostSchemaBytes) + " bytes");
  try {
    return std::make_shared<const serving::Schema>(own["schema"]);
  } catch (const Error& error) {
    throw Problem(400, error.what(), kField);
  }
}

Json arguments_of(const Body& body) {
  const Json* const arguments = body.find("chat_template_kwargs");
  Json out = Json::object();
  if (arguments && !arguments->is_object())
    refuse("chat_template_kwargs", "is " + kind_of(*arguments) + "; expected an object");
  if (const auto effort = body.string("reasoning_effort")) out["reasoning_effort"] = *effort;
  if (arguments) out.update(*arguments);
  return out.empty() ? Json(nullptr) : out;
}

}  // namespace

ChatRequest chat_request_of(const Body& body, const ServedModel& model) {
  std::vector<std::string_view> known(kAnswerFields.begin(), kAnswerFields.end());
  known.insert(known.end(), kChatFields.begin(), kChatFields.end());
  body.allow(known);
  if (!model.chat) throw Problem(400, "this model has no chat template; use /v1/completions", "messages");
  ChatRequest out;
  out.fields = answer_fields_of(body, model);
  if (const auto most = body.integer("max_completion_tokens", 0, 1LL << 53)) out.fields.max_tokens = most;
  const auto wants_logprobs = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, 20);
  if (top && !wants_logprobs) refuse("top_logprobs", "is for \"logprobs\": true alone");
  if (wants_logprobs) out.fields.top_logprobs = static_cast<int>(top.value_or(0));
  out.schema = schema_of(body);
  out.input.messages = messages_of(body);
  read_tools(body, out);
  out.input.arguments = arguments_of(body);
  if (const Json* documents = body.find("documents")) out.input.documents = *documents;
  out.has_answers = std::ranges::any_of(*out.input.messages, [](const Json& m) { return m["role"] == "assistant"; });
  out.separates_thinking = body.boolean("separate_reasoning").value_or(true);
  return out;
}

}  // namespace halfbyte::server
