#include "tools/server/api/tool_call_forms.h"

#include <algorithm>
#include <optional>

#include "tools/server/api/bounded_json.h"
#include "tools/server/api/python_values.h"
#include "tools/server/api/shape.h"

namespace halfbyte::server {
namespace {

const Tool* find_tool(std::span<const Tool> tools, std::string_view name) {
  const auto found = std::ranges::find(tools, name, &Tool::name);
  return found == tools.end() ? nullptr : &*found;
}

std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return std::nullopt;
  for (const char* key : {"arguments", "parameters"}) {
    if (!json.contains(key)) continue;
    const Json& arguments = json[key];
    if (!arguments.is_object() && !arguments.is_string()) return std::nullopt;
    return ToolCall{json["name"], arguments.is_string() ? arguments.get<std::string>() : text_of(arguments)};
  }
  return std::nullopt;
}

// One object, a list of them, or several after one another with ';' between.
std::vector<ToolCall> object_calls(std::string_view text, std::span<const Tool>) {
  std::vector<ToolCall> out;
  const std::optional<Json> parsed = parsed_json(std::string(text));
  if (!parsed) return {};
  const Json& json = *parsed;
  const Json list = json.is_array() ? json : Json::array({json});
  for (const Json& one : list) {
    const auto call = call_of(one);
    if (!call) return {};
    out.push_back(*call);
  }
  return out;
}

// "name[ARGS]{...}", as later Mistral models write each call.
std::vector<ToolCall> named_call(std::string_view text, std::span<const Tool>) {
  const std::size_t brace = text.find('{');
  if (brace == std::string_view::npos || brace == 0) return {};
  std::string_view name = text.substr(0, brace);
  if (name.ends_with("[ARGS]")) name.remove_suffix(6);
  name = without_blanks(name);
  const std::optional<Json> arguments = parsed_json(std::string(text.substr(brace)));
  if (!arguments || !arguments->is_object() || name.empty() || name.find_first_of(" \n\"[") != std::string_view::npos)
    return {};
  return {{std::string(name), text_of(*arguments)}};
}

// What stands between the first `open` and the next `close`, taken from the text with all before it; nothing: both are
// not there.
std::optional<std::string_view> take_between(std::string_view& text, std::string_view open, std::string_view close) {
  const std::size_t begin = text.find(open);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = text.find(close, begin + open.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view out = text.substr(begin + open.size(), end - begin - open.size());
  text.remove_prefix(end + close.size());
  return out;
}

// A value in a tag: of a parameter that is no string, JSON where it is some.
void add_argument(const Tool& tool, std::string_view key, std::string_view value, Json& out) {
  const bool is_text = std::ranges::find(tool.texts, key) != tool.texts.end();
  std::optional<Json> parsed = is_text ? std::nullopt : parsed_json(std::string(value));
  out[std::string(key)] = parsed ? std::move(*parsed) : Json(value);
}

// name, then <arg_key>key</arg_key><arg_value>value</arg_value> again and again (GLM-4.5).
std::vector<ToolCall> keyed_call(std::string_view text, std::span<const Tool> tools) {
  const std::size_t end = text.find("<arg_key>");
  const Tool* const tool = find_tool(tools, without_blanks(text.substr(0, end)));
  if (!tool) return {};
  Json arguments = Json::object();
  while (const auto key = take_between(text, "<arg_key>", "</arg_key>")) {
    if (arguments.size() >= kMostMembers) return {};
    const auto value = take_between(text, "<arg_value>", "</arg_value>");
    if (!value) return {};
    add_argument(*tool, without_blanks(*key), *value, arguments);
  }
  return {{tool->name, text_of(arguments)}};
}

// <function=name><parameter=key>value</parameter></function>, each value in lines of its own (Qwen3-Coder).
std::vector<ToolCall> tagged_call(std::string_view text, std::span<const Tool> tools) {
  const auto name = take_between(text, "<function=", ">");
  const Tool* const tool = name ? find_tool(tools, *name) : nullptr;
  if (!tool) return {};
  Json arguments = Json::object();
  while (const auto key = take_between(text, "<parameter=", ">")) {
    if (arguments.size() >= kMostMembers) return {};
    const std::size_t end = text.find("</parameter>");
    if (end == std::string_view::npos) return {};
    std::string_view value = text.substr(0, end);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    add_argument(*tool, *key, value, arguments);
    text.remove_prefix(end);
  }
  return {{tool->name, text_of(arguments)}};
}

// A tool's name in a line of its own, then {...} (GLM-4) or tool_call(key=value) in a fence (ChatGLM3).
std::vector<ToolCall> headed_call(std::string_view text, std::span<const Tool> tools) {
  const std::size_t line = text.find('\n');
  if (line == std::string_view::npos) return {};
  const Tool* const tool = find_tool(tools, without_blanks(text.substr(0, line)));
  if (!tool) return {};
  std::string_view rest = without_blanks(text.substr(line));
  std::optional<Json> arguments = parsed_json(std::string(rest));
  if (!arguments) {
    constexpr std::string_view kCall = "tool_call(";
    const std::size_t begin = rest.find(kCall);
    if (begin == std::string_view::npos) return {};
    arguments = keyword_arguments(rest.substr(begin + kCall.size()));
  }
  if (!arguments || !arguments->is_object()) return {};
  return {{tool->name, text_of(*arguments)}};
}

using Form = std::vector<ToolCall> (*)(std::string_view text, std::span<const Tool> tools);
constexpr Form kForms[] = {object_calls, named_call, keyed_call, tagged_call, headed_call};

}  // namespace

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \r\n\t"), text.size());
  const std::size_t end = text.find_last_not_of(" \r\n\t;");
  return begin >= text.size() || end == std::string_view::npos || end < begin ? ""
                                                                              : text.substr(begin, end + 1 - begin);
}

std::vector<ToolCall> calls_in(std::string_view text, std::span<const Tool> tools) {
  for (const Form form : kForms) {
    if (std::vector<ToolCall> calls = form(text, tools); !calls.empty()) return calls;
  }
  return {};
}

}  // namespace halfbyte::server
