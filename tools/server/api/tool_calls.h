// Tells the calls of tools in an answer from its text, in the ways that families write them.
#pragma once

#include <string>
#include <vector>

namespace halfbyte::server {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, as text
  bool operator==(const ToolCall&) const = default;
};

class ToolCallSplitter {
 public:
  // `tools`: names. An object alone is a call where it names one of them.
  explicit ToolCallSplitter(std::vector<std::string> tools) : tools_(std::move(tools)) {}

  struct Parts {
    std::string text;
    std::vector<ToolCall> calls;
  };
  // Calls come whole. What looked like one and is none is text.
  Parts push(const std::string& piece);
  Parts finish();
  bool has_calls() const noexcept { return has_calls_; }

 private:
  enum class State { kBeginning, kText, kCall, kObject };
  void take_text(Parts& out);
  bool take_call(Parts& out);
  void read(const std::string& body, const std::string& written, bool is_alone, Parts& out);

  bool is_tool(const std::string& name) const;

  std::vector<std::string> tools_;
  State state_ = State::kBeginning;
  std::size_t form_ = 0;
  std::string held_;
  bool has_calls_ = false;
};

// Tokens whose spelling begins a call, though decoders leave special tokens out.
bool begins_call(const std::string& piece);

}  // namespace halfbyte::server
