// The calls in what a family writes as one: a table of forms.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::server {

// A tool that a model may call.
struct Tool {
  std::string name;
  std::vector<std::string> texts = {};  // the parameters that are strings, whatever their values spell
};

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, as text
  bool operator==(const ToolCall&) const = default;
};

// Of a text without what families put around it: an object or a list of them with "name" and "arguments" or
// "parameters"; name[ARGS]{...} (Mistral); a name, and arguments with their keys in tags (GLM-4.5, Qwen3-Coder); a
// tool's name in a line of its own, then its arguments as an object (GLM-4) or as tool_call(key=value) (ChatGLM3).
// Empty: none.
std::vector<ToolCall> calls_in(std::string_view text, std::span<const Tool> tools);

std::string_view without_blanks(std::string_view text);

}  // namespace halfbyte::server
