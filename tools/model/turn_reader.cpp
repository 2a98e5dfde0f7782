#include "tools/model/turn_reader.h"

#include <algorithm>

namespace halfbyte::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

Turn broken_off(const Line& line) {
  return {line.kind == Line::Kind::kEnd ? Turn::Kind::kEnd : Turn::Kind::kInterrupted, line.text, ""};
}

Turn command_of(const std::string& line) {
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::size_t rest = std::min(line.find_first_not_of(" \t", end), line.size());
  return {Turn::Kind::kCommand, line.substr(0, end), line.substr(rest)};
}

// After the opening quotes. A block that the input's end cuts off is what there is of it.
Turn read_block(std::string text, const LineSource& next_line) {
  while (!text.ends_with(kQuotes)) {
    const Line line = next_line(true);
    if (line.kind == Line::Kind::kInterrupted) return broken_off(line);
    if (line.kind == Line::Kind::kEnd) return {Turn::Kind::kText, text, ""};
    text += (text.empty() ? "" : "\n") + line.text;
  }
  text.resize(text.size() - kQuotes.size());
  if (text.ends_with('\n')) text.pop_back();
  return {Turn::Kind::kText, text, ""};
}

Turn read_continued(std::string text, const LineSource& next_line) {
  while (text.ends_with('\\')) {
    text.back() = '\n';
    const Line line = next_line(true);
    if (line.kind == Line::Kind::kInterrupted) return broken_off(line);
    if (line.kind == Line::Kind::kEnd) break;
    text += line.text;
  }
  return {Turn::Kind::kText, text, ""};
}

}  // namespace

Turn read_turn(const LineSource& next_line) {
  while (true) {
    Line line = next_line(false);
    if (line.kind != Line::Kind::kText) return broken_off(line);
    if (line.text.ends_with('\r')) line.text.pop_back();
    if (line.text.find_first_not_of(" \t") == std::string::npos) continue;
    if (line.text.starts_with(kQuotes)) return read_block(line.text.substr(kQuotes.size()), next_line);
    if (line.text.starts_with('/') && !line.text.starts_with("//")) return command_of(line.text);
    return read_continued(line.text.starts_with("//") ? line.text.substr(1) : line.text, next_line);
  }
}

}  // namespace halfbyte::cli
