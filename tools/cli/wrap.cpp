#include "tools/cli/wrap.h"

#include <algorithm>

namespace halfbyte::cli {
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// Bytes of the first `columns` characters.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (std::size_t count = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && count++ == columns) break;
  }
  return at;
}

// Where a line of a word that is too long ends.
std::size_t break_within(std::string_view word, std::size_t columns) {
  const std::size_t most = std::max<std::size_t>(bytes_of(word, columns), 1);
  const std::size_t mark = word.substr(0, most).find_last_of("./|,_=-");
  return mark == std::string_view::npos || mark < most / 3 ? most : mark + 1;
}

class Lines {
 public:
  explicit Lines(std::size_t columns) : columns_(std::max<std::size_t>(columns, 1)) {}
  void add(std::string_view word) {
    const std::size_t used = columns_of(lines_.back());
    if (used > 0 && used + 1 + columns_of(word) <= columns_) {
      lines_.back().append(1, ' ').append(word);
      return;
    }
    if (used > 0) lines_.emplace_back();
    for (; columns_of(word) > columns_; lines_.emplace_back()) {
      const std::size_t end = break_within(word, columns_);
      lines_.back() = word.substr(0, end);
      word.remove_prefix(end);
    }
    lines_.back() = word;
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::size_t columns_;
  std::vector<std::string> lines_{""};
};

std::vector<std::string> words_of(std::string_view text, bool keeps_quotes) {
  std::vector<std::string> words(1);
  bool is_quoted = false;
  for (const char c : text) {
    if (c == '\'' && keeps_quotes) is_quoted = !is_quoted;
    if (c != ' ' || is_quoted) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.size() > 1 && words.back().empty()) words.pop_back();
  return words;
}

}  // namespace

std::size_t columns_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return {std::string(text)};
  Lines lines(columns);
  for (const std::string& word : words_of(text, /*keeps_quotes=*/false)) lines.add(word);
  return lines.take();
}

std::string with_indent(const std::string& head, std::string_view text, std::size_t indent, std::size_t columns) {
  const std::size_t lead = std::min(head.find_first_not_of(' '), head.size());
  if (columns_of(head) > indent && lead < head.size())  // the first line has less room than those below it
    return with_indent(head.substr(0, lead), head.substr(lead) + std::string(text), indent, columns);
  std::string out = head;
  bool is_first = true;
  for (const std::string& line : wrapped(text, columns - std::min(columns - 1, indent))) {
    if (!is_first) out += "\n" + std::string(indent, ' ');
    is_first = false;
    out += line;
  }
  return out;
}

std::string wrapped_command(const std::string& command, std::size_t columns) {
  const std::size_t indent = command.find_first_not_of(' ');
  if (indent == std::string::npos || columns_of(command) <= columns) return command;
  std::string out(indent, ' ');
  std::size_t used = indent;
  for (const std::string& word : words_of(command.substr(indent), /*keeps_quotes=*/true)) {
    const bool is_first = used <= indent;
    if (!is_first && used + 1 + columns_of(word) + 2 > columns) {
      out += " \\\n" + std::string(indent + 4, ' ');
      used = indent + 4;
    } else if (!is_first) {
      out += " ";
      ++used;
    }
    out += word;
    used += columns_of(word);
  }
  return out;
}

}  // namespace halfbyte::cli
