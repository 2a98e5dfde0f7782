// Source: jinja2/lexer.py.
#include "models/chat/jinja/lexer.h"

#include <algorithm>
#include <utility>

#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/string_escapes.h"
#include "models/chat/trim.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {
namespace {

bool is_name_byte(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_decimal(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The longest first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};

// One kind of line break, and none at the very end.
std::string with_plain_lines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool is_pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (is_pair) continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::string_view without_blanks_after(std::string_view text) {
  const std::string_view all = trimmed(text);
  return all.empty() ? all : text.substr(0, static_cast<std::size_t>(all.data() - text.data()) + all.size());
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      data(source_.substr(at_, tag - at_), tag);
      at_ = tag;
      if (at_ < source_.size()) read_tag();
    }
    add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void syntax(const std::string& problem) const {
    refuse("line " + std::to_string(line_) + ": " + problem);
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Goes on, counting lines.
  void skip(std::size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
    starts_line_ = at_ > 0 && source_[at_ - 1] == '\n';
  }
  bool stands(std::string_view word) const { return std::string_view(source_).substr(at_).starts_with(word); }
  void skip_blanks() {
    while (at_ < source_.size() && is_blank(source_[at_])) skip(1);
  }

  std::size_t next_tag() const {
    for (std::size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos) return i;
    }
    return source_.size();
  }

  // The sign that stands behind a tag's two characters.
  char sign_at(std::size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    return sign == '-' || sign == '+' ? sign : '\0';
  }

  // Text before a tag, or before the end, without what the tag takes.
  void data(std::string_view text, std::size_t tag) {
    const int line = line_;
    std::string_view kept = text;
    if (tag < source_.size()) {
      const char sign = sign_at(tag);
      if (sign == '-') kept = without_blanks_after(text);
      if (sign == '\0' && source_[tag + 1] != '{') kept = without_indent(text);
    }
    if (!kept.empty()) tokens_.push_back({TokenKind::kData, std::string(kept), line});
    skip(text.size());
  }

  // lstrip_blocks: blanks between the beginning of a line and a tag.
  std::string_view without_indent(std::string_view text) const {
    const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !starts_line_) return text;
    return trimmed(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void read_tag() {
    const char kind = source_[at_ + 1];
    const bool has_sign = sign_at(at_) != '\0';
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, {});
    skip(has_sign ? 3 : 2);
    expression(kind == '{' ? "}}" : "%}");
  }

  // Behind the end of a block or comment, whose sign was `sign`.
  void trim_behind(char sign) {
    if (sign == '-') skip_blanks();
    if (sign == '\0' && stands("\n")) skip(1);
  }

  void comment() {
    const std::size_t begin = at_ + (sign_at(at_) != '\0' ? 3 : 2);
    const std::size_t end = source_.find("#}", begin);
    if (end == std::string::npos) syntax("a comment has no end");
    const char before = end > begin ? source_[end - 1] : '\0';
    skip(end + 2 - at_);
    trim_behind(before == '-' || before == '+' ? before : '\0');
  }

  // Where `{% NAME %}` ends that begins at `tag`; npos: none begins there. `sign`: of its end.
  std::size_t end_of_word_tag(std::size_t tag, std::string_view name, char& sign) const {
    std::size_t i = tag + (sign_at(tag) != '\0' ? 3 : 2);
    while (i < source_.size() && is_blank(source_[i])) ++i;
    if (!std::string_view(source_).substr(i).starts_with(name)) return std::string::npos;
    i += name.size();
    while (i < source_.size() && is_blank(source_[i])) ++i;
    sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : '\0';
    if (sign != '\0') ++i;
    return std::string_view(source_).substr(i).starts_with("%}") ? i + 2 : std::string::npos;
  }

  bool raw() {
    char sign = '\0';
    const std::size_t begin = end_of_word_tag(at_, "raw", sign);
    if (begin == std::string::npos || sign == '+') return false;
    skip(begin - at_);
    if (sign == '-') skip_blanks();
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const std::size_t end = end_of_word_tag(tag, "endraw", sign);
      if (end == std::string::npos) continue;
      data(source_.substr(at_, tag - at_), tag);
      skip(end - at_);
      trim_behind(sign);
      return true;
    }
    syntax("a raw block has no end");
  }

  // Up to the tag's end; an end within brackets is an operator.
  void expression(std::string_view end) {
    std::string open;
    while (true) {
      skip_blanks();
      if (at_ >= source_.size()) syntax("a tag has no end");
      if (open.empty() && is_end(end)) return;
      if (is_decimal(source_[at_])) {
        number();
      } else if (is_name_byte(source_[at_])) {
        name();
      } else if (source_[at_] == '"' || source_[at_] == '\'') {
        string();
      } else {
        operation(open);
      }
    }
  }

  bool is_end(std::string_view end) {
    const bool is_block = end == "%}";
    const char sign = source_[at_] == '-' || (is_block && source_[at_] == '+') ? source_[at_] : '\0';
    const std::size_t at = at_ + (sign != '\0' ? 1 : 0);
    if (!std::string_view(source_).substr(at).starts_with(end)) return false;
    add(is_block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, {});
    skip(at + 2 - at_);
    if (is_block) trim_behind(sign);
    if (!is_block && sign == '-') skip_blanks();
    return true;
  }

  std::size_t past(std::size_t i, bool (*is_part)(char)) const {
    while (i < source_.size() && is_part(source_[i])) ++i;
    return i;
  }

  void number() {
    std::size_t i = past(at_, is_decimal);
    TokenKind kind = TokenKind::kInteger;
    const auto digit_at = [&](std::size_t at) { return at < source_.size() && is_decimal(source_[at]); };
    if (i < source_.size() && source_[i] == '.' && digit_at(i + 1)) {
      kind = TokenKind::kFloat;
      i = past(i + 1, is_decimal);
    }
    if (i < source_.size() && (source_[i] == 'e' || source_[i] == 'E')) {
      const std::size_t sign = i + 1 < source_.size() && (source_[i + 1] == '+' || source_[i + 1] == '-') ? 1 : 0;
      if (digit_at(i + 1 + sign)) {
        kind = TokenKind::kFloat;
        i = past(i + 1 + sign, is_decimal);
      }
    }
    if (i < source_.size() && is_name_byte(source_[i])) syntax("a number is followed by a letter");
    add(kind, source_.substr(at_, i - at_));
    skip(i - at_);
  }

  void name() {
    const std::size_t end = past(at_, is_name_byte);
    add(TokenKind::kName, source_.substr(at_, end - at_));
    skip(end - at_);
  }

  void string() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) syntax("a string has no end");
    const auto text = unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (!text) syntax("a string has an escape that is none");
    add(TokenKind::kString, *text);
    skip(end + 1 - at_);
  }

  void operation(std::string& open) {
    const auto* found = std::ranges::find_if(kOperators, [&](std::string_view word) { return stands(word); });
    if (found == std::end(kOperators)) syntax("unexpected " + in_quotes(source_.substr(at_, 1)));
    constexpr std::string_view kBrackets = "()[]{}";
    const std::size_t bracket = found->size() == 1 ? kBrackets.find(found->front()) : std::string_view::npos;
    if (bracket != std::string_view::npos && bracket % 2 == 0) open += kBrackets[bracket + 1];
    if (bracket != std::string_view::npos && bracket % 2 == 1) {
      if (!open.ends_with(found->front())) syntax("unexpected " + in_quotes(*found));
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(*found));
    skip(found->size());
  }

  std::string source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    refuse("it has " + std::to_string(source.size()) + " bytes, more than the " + std::to_string(kMaxSourceBytes) +
           " that are read");
  return Lexer(with_plain_lines(source)).run();
}

}  // namespace halfbyte::models::jinja
