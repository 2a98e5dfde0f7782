// Tells the calls of tools in an answer from its text, in the ways that families write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/server/api/tool_call_forms.h"

namespace halfbyte::server {

class ToolCallSplitter {
 public:
  // An object alone is a call where it names one of them; so is an answer that begins with one's name as a line.
  explicit ToolCallSplitter(std::vector<Tool> tools) : tools_(std::move(tools)) {}

  struct Parts {
    std::string text;
    std::vector<ToolCall> calls;
  };
  // Calls come whole. What looked like one and is none is text.
  Parts push(const std::string& piece);
  Parts finish();
  bool has_calls() const noexcept { return has_calls_; }

 private:
  enum class State { kBeginning, kText, kCall, kWhole };
  void take_text(Parts& out);
  bool take_call(Parts& out);
  void read(const std::string& body, const std::string& written, bool is_alone, Parts& out);

  bool is_tool(const std::string& name) const;
  bool may_be_name(std::string_view begun) const;

  std::vector<Tool> tools_;
  State state_ = State::kBeginning;
  std::size_t form_ = 0;
  std::string held_;
  std::size_t searched_ = 0;  // of held_: no end of the call begins there
  bool has_calls_ = false;
};

// Tokens whose spelling begins a call, though decoders leave special tokens out.
bool begins_call(const std::string& piece);

}  // namespace halfbyte::server
