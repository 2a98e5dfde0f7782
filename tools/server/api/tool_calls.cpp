#include "tools/server/api/tool_calls.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "tools/server/api/markers.h"

namespace halfbyte::server {
namespace {

// One way of writing calls: between these, or up to the answer's end where nothing closes them.
struct Form {
  std::string_view open, close;
};
constexpr Form kForms[] = {
    {"<tool_call>", "</tool_call>"},  // Hermes, Qwen 2.5 and 3, GLM-4.5
    {"[TOOL_CALLS]", ""},             // Mistral
    {"<|python_tag|>", ""},           // Llama 3.1
};
constexpr std::size_t kMostBlanks = 4096;  // in front of an answer that is a call
constexpr std::array<std::string_view, 3> kOpens = {kForms[0].open, kForms[1].open, kForms[2].open};

}  // namespace

bool begins_call(const std::string& piece) { return std::ranges::find(kOpens, piece) != kOpens.end(); }

ToolCallSplitter::Parts ToolCallSplitter::push(const std::string& piece) {
  Parts out;
  held_ += piece;
  if (state_ == State::kBeginning) {
    const std::string_view begun = without_blanks(held_);
    if (begun.empty() && held_.size() < kMostBlanks) return out;
    if (begun.empty()) state_ = State::kText;
  }
  if (state_ == State::kBeginning) {
    const std::string_view begun = without_blanks(held_);
    const std::size_t line = held_.find('\n', held_.find_first_not_of(" \r\n\t"));
    const bool is_line = line != std::string::npos;
    const bool is_name = is_line && is_tool(std::string(without_blanks(std::string_view(held_).substr(0, line))));
    if (!is_line && may_be_name(begun)) return out;
    state_ = begun.front() == '{' || is_name ? State::kWhole : State::kText;
  }
  if (state_ == State::kWhole) return out;  // a call, perhaps: known at its end
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
  const std::size_t end = held_.find(close, searched_);
  searched_ = end == std::string::npos && held_.size() > close.size() ? held_.size() - close.size() : 0;
  if (end == std::string::npos) return false;
  const std::string body = held_.substr(0, end);
  held_.erase(0, end + close.size());
  read(body, std::string(kForms[form_].open) + body + std::string(close), false, out);
  state_ = State::kText;
  return true;
}

bool ToolCallSplitter::is_tool(const std::string& name) const {
  return std::ranges::find(tools_, name, &Tool::name) != tools_.end();
}

// Whether a tool's name may come of it, or it is one that a line may end after.
bool ToolCallSplitter::may_be_name(std::string_view begun) const {
  return std::ranges::any_of(tools_, [&](const Tool& tool) { return tool.name.starts_with(begun); });
}

// `written`: what is text where `body` is no call. `is_alone`: nothing else says that it is one.
void ToolCallSplitter::read(const std::string& body, const std::string& written, bool is_alone, Parts& out) {
  const std::vector<ToolCall> calls = calls_in(without_blanks(body), tools_);
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
  if (state_ == State::kWhole) {
    read(rest, rest, true, out);
  } else if (state_ == State::kCall) {
    read(rest, std::string(kForms[form_].open) + rest, false, out);
  } else {
    out.text = rest;
  }
  return out;
}

}  // namespace halfbyte::server
