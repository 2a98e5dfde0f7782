// What a user says next in a chat: a line, several, or a command.
#pragma once

#include <functional>
#include <string>

#include "tools/model/line_editor.h"

namespace halfbyte::cli {

struct Turn {
  enum class Kind { kText, kCommand, kInterrupted, kEnd };
  Kind kind = Kind::kText;
  std::string text;  // of a command: its word; when interrupted: what was typed
  std::string rest;  // of a command: what follows
};

// Gives the next line; `is_more`: of a turn that has begun.
using LineSource = std::function<Line(bool is_more)>;

// A line that ends with \ goes on in the next; """ opens and closes a block of lines; a line with / begins a command,
// one with // is a text with /. Empty lines are passed over.
Turn read_turn(const LineSource& next_line);

}  // namespace halfbyte::cli
