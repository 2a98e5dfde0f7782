// Without libedit. The terminal's own editing: a Ctrl-C there discards the line before it gets here.
#include <cstdio>
#include <iostream>

#include "tools/model/line_editor.h"

namespace halfbyte::cli {

struct LineEditor::State {};

LineEditor::LineEditor() = default;
LineEditor::~LineEditor() = default;

Line LineEditor::read(const std::string& prompt) {
  std::fputs(prompt.c_str(), stderr);
  std::string text;
  if (!std::getline(std::cin, text)) return {Line::Kind::kEnd, ""};
  return {Line::Kind::kText, std::move(text)};
}

void LineEditor::remember(const std::string&) {}

}  // namespace halfbyte::cli
