#include "tools/server/api/tool_calls.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/server/api/bounded_json.h"
#include "tools/server/api/markers.h"

namespace halfbyte::server {
namespace {

// One way of writing calls: between these, or up to the answer's end where nothing closes them.
struct Form {
  std::string_view open, close;
};
constexpr Form kForms[] = {
    {"<tool_call>", "</tool_call>"},  // Hermes, Qwen 2.5 and 3
    {"[TOOL_CALLS]", ""},             // Mistral
    {"<|python_tag|>", ""},           // Llama 3.1
};
constexpr std::array<std::string_view, 3> kOpens = {kForms[0].open, kForms[1].open, kForms[2].open};

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \r\n\t"), text.size());
  const std::size_t end = text.find_last_not_of(" \r\n\t;");
  return begin >= text.size() || end == std::string_view::npos || end < begin ? ""
                                                                              : text.substr(begin, end + 1 - begin);
}

std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return std::nullopt;
  for (const char* key : {"arguments", "parameters"}) {
    if (!json.contains(key)) continue;
    const Json& arguments = json[key];
    if (!arguments.is_object() && !arguments.is_string()) return std::nullopt;
    return ToolCall{json["name"], arguments.is_string() ? arguments.get<std::string>() : arguments.dump()};
  }
  return std::nullopt;
}

// One object, a list of them, or several after one another with ';' between.
std::vector<ToolCall> calls_of(std::string_view text) {
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
std::vector<ToolCall> named_call_of(std::string_view text) {
  const std::size_t brace = text.find('{');
  if (brace == std::string_view::npos || brace == 0) return {};
  std::string_view name = text.substr(0, brace);
  if (name.ends_with("[ARGS]")) name.remove_suffix(6);
  name = without_blanks(name);
  const std::optional<Json> arguments = parsed_json(std::string(text.substr(brace)));
  if (!arguments || !arguments->is_object() || name.empty() || name.find_first_of(" \n\"[") != std::string_view::npos)
    return {};
  return {{std::string(name), arguments->dump()}};
}

}  // namespace

bool begins_call(const std::string& piece) { return std::ranges::find(kOpens, piece) != kOpens.end(); }

ToolCallSplitter::Parts ToolCallSplitter::push(const std::string& piece) {
  Parts out;
  held_ += piece;
  if (state_ == State::kBeginning) {
    const std::string_view begun = without_blanks(held_);
    if (begun.empty()) return out;
    state_ = begun.front() == '{' ? State::kObject : State::kText;
  }
  if (state_ == State::kObject) return out;  // a call, perhaps: known at its end
  while (true) {
    if (state_ == State::kText) take_text(out);
    if (state_ != State::kCall || !take_call(out)) return out;
  }
}

void ToolCallSplitter::take_text(Parts& out) {
  const FoundMarker open = find_marker(held_, kOpens);
  const bool is_open = open.begin != std::string_view::npos;
  const std::size_t size = is_open ? open.begin : held_.size() - possible_beginning(held_, kOpens);
  const std::string text = held_.substr(0, size);
  if (!has_calls_ || !without_blanks(text).empty()) out.text += text;  // blanks between calls are none of it
  held_.erase(0, is_open ? size + kOpens[open.marker].size() : size);
  if (!is_open) return;
  form_ = open.marker;
  state_ = State::kCall;
}

// False: it is not complete.
bool ToolCallSplitter::take_call(Parts& out) {
  const std::string_view close = kForms[form_].close;
  if (close.empty()) return false;
  const std::size_t end = held_.find(close);
  if (end == std::string::npos) return false;
  const std::string body = held_.substr(0, end);
  held_.erase(0, end + close.size());
  read(body, std::string(kForms[form_].open) + body + std::string(close), false, out);
  state_ = State::kText;
  return true;
}

bool ToolCallSplitter::is_tool(const std::string& name) const {
  return std::ranges::find(tools_, name) != tools_.end();
}

// `written`: what is text where `body` is no call. `is_alone`: nothing else says that it is one.
void ToolCallSplitter::read(const std::string& body, const std::string& written, bool is_alone, Parts& out) {
  const std::string_view text = without_blanks(body);
  std::vector<ToolCall> calls = calls_of(text);
  if (calls.empty()) calls = named_call_of(text);
  const bool are_known = std::ranges::all_of(calls, [&](const ToolCall& call) { return is_tool(call.name); });
  if (calls.empty() || (is_alone && !are_known)) {
    out.text += written;
    return;
  }
  has_calls_ = true;
  out.calls.insert(out.calls.end(), calls.begin(), calls.end());
}

ToolCallSplitter::Parts ToolCallSplitter::finish() {
  Parts out;
  const std::string rest = std::exchange(held_, {});
  if (state_ == State::kObject) {
    read(rest, rest, true, out);
  } else if (state_ == State::kCall) {
    read(rest, std::string(kForms[form_].open) + rest, false, out);
  } else {
    out.text = rest;
  }
  return out;
}

}  // namespace halfbyte::server
