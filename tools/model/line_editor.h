// Lines that a person types at a terminal: with libedit where halfbyte was built with it (history, cursor keys), else
// as the terminal gives them.
#pragma once

#include <memory>
#include <string>

namespace halfbyte::cli {

struct Line {
  enum class Kind { kText, kInterrupted, kEnd };
  Kind kind = Kind::kText;
  std::string text;  // without its line break; when interrupted, what was typed so far
};

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  // Ctrl-C gives kInterrupted, Ctrl-D on an empty line kEnd.
  Line read(const std::string& prompt);
  void remember(const std::string& entry);  // for the cursor keys

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte::cli
