#include "models/chat/jinja_template.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/encode.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/trim.h"
#include "models/json/printable.h"

namespace halfbyte::models {
namespace {

using Json = nlohmann::ordered_json;

// What a message's reasoning is called.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

// As transformers gives templates a message: reasoning under the names that they read, and no member that is null.
// Source: its apply_chat_template, and _alias_reasoning_fields.
Json completed(const Json& message) {
  const Json* said = nullptr;
  for (const char* name : kReasoning) {
    const auto at = message.find(name);
    if (!said && at != message.end() && !at->is_null()) said = &*at;
  }
  Json out = Json::object();
  if (said) out["thinking"] = nullptr;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  if (said && out["thinking"].is_null()) out["thinking"] = *said;
  if (said) out["reasoning_content"] = *said;
  return out;
}

Json prepared(const Json& messages) {
  if (!messages.is_array()) throw Error(ErrorCode::kInvalidArgument, "a conversation is a list of messages");
  Json out = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object()) throw Error(ErrorCode::kInvalidArgument, "a message is an object with a \"role\"");
    out.push_back(completed(message));
  }
  return out;
}

bool is_text_of(const Json& message, const char* role) {
  return message.is_object() && message.value("role", Json()) == role && message.contains("content") &&
         message["content"].is_string();
}

// The system text in front of the first user's. Nothing: there are no such two.
std::optional<ChatInput> with_system_in_user(const ChatInput& input) {
  const Json& messages = *input.messages;
  if (messages.size() < 2 || !is_text_of(messages[0], "system") || !is_text_of(messages[1], "user"))
    return std::nullopt;
  ChatInput out = input;
  out.messages->erase(out.messages->begin());
  Json& first = (*out.messages)[0]["content"];
  first = messages[0]["content"].get<std::string>() + "\n\n" + first.get<std::string>();
  return out;
}

jinja::Program program_of(const std::string& text, const std::string& where) {
  return jinja::Program(text, where + ": its chat template");
}

}  // namespace

JinjaTemplate::JinjaTemplate(const std::vector<NamedTemplate>& templates, const std::string& where,
                             JinjaSetting setting)
    : program_(program_of(templates.front().text, where)), setting_(std::move(setting)) {
  const auto tools = std::ranges::find(templates, "tool_use", &NamedTemplate::name);
  if (tools != templates.end() && tools != templates.begin()) with_tools_ = program_of(tools->text, where);
  if (setting_.date.empty()) return;
  date_ = jinja::parse_date(setting_.date);
  if (!date_) {
    throw Error(ErrorCode::kInvalidArgument,
                "the date " + in_quotes(setting_.date) + " is not written like 26 Jul 2024 or 2024-07-26");
  }
}

jinja::Text JinjaTemplate::run(const ChatInput& input) const {
  std::vector<std::pair<std::string, Json>> own;
  for (const NamedToken& token : setting_.tokens) {
    if (!token.spelling.empty()) own.emplace_back(token.name, token.spelling);
  }
  if (date_) own.emplace_back("date_string", setting_.date);  // what Llama 3.1's and its like ask for
  std::vector<std::pair<std::string, Json>> given;
  given.emplace_back("messages", prepared(*input.messages));
  given.emplace_back("tools", *input.tools);
  given.emplace_back("documents", *input.documents);
  given.emplace_back("add_generation_prompt", input.asks_for_answer);
  for (const Json* arguments : {&*setting_.arguments, &*input.arguments}) {
    for (const auto& [name, value] : arguments->items()) given.emplace_back(name, value);
  }
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : own) variables.push_back({name, &value, jinja::Origin::kTemplate});
  for (const auto& [name, value] : given) variables.push_back({name, &value, jinja::Origin::kGiven});
  const bool has_tools = with_tools_ && !input.tools->is_null();
  return (has_tools ? *with_tools_ : program_).run(variables, date_ ? *date_ : jinja::local_now());
}

jinja::Text JinjaTemplate::render(const ChatInput& input) const {
  try {
    return run(input);
  } catch (const jinja::Refused&) {
    const auto other = with_system_in_user(input);
    if (!other) throw;
    try {
      return run(*other);
    } catch (const Error&) {
    }
    throw;
  }
}

std::optional<std::int64_t> JinjaTemplate::token_behind_answer(const Tokenizer& tokenizer) const {
  constexpr std::string_view kAnswer = "ANSWER";
  const ChatInput input = chat_input_of(
      {{Speaker::kUser, "QUESTION"}, {Speaker::kAssistant, std::string(kAnswer)}, {Speaker::kUser, "QUESTION"}});
  std::vector<Segment> segments;
  try {
    segments = segments_of(run(input), tokenizer);
  } catch (const Error&) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i + 1 < segments.size(); ++i) {
    const std::size_t at = segments[i].is_control ? std::string::npos : segments[i].text.rfind(kAnswer);
    if (at == std::string::npos) continue;
    const bool is_end = trimmed(std::string_view(segments[i].text).substr(at + kAnswer.size())).empty();
    return is_end && segments[i + 1].is_control ? tokenizer.id_of(segments[i + 1].text) : std::nullopt;
  }
  return std::nullopt;
}

TokenIds JinjaTemplate::stop_tokens(const Tokenizer& tokenizer) const {
  TokenIds ids;
  const auto add = [&](std::optional<std::int64_t> id) {
    if (id && std::ranges::find(ids, *id) == ids.end()) ids.push_back(*id);
  };
  if (setting_.family) {
    for (const std::string_view stop : setting_.family->stops) add(stop.empty() ? std::nullopt : tokenizer.id_of(stop));
  }
  for (const NamedToken& token : setting_.tokens) {
    if (token.name == "eos_token" && !token.spelling.empty()) add(tokenizer.id_of(token.spelling));
  }
  add(token_behind_answer(tokenizer));
  return ids;
}

}  // namespace halfbyte::models
