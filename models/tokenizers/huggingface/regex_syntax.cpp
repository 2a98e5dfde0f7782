#include "models/tokenizers/huggingface/regex_syntax.h"

#include <cctype>
#include <cstdio>
#include <optional>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/char_set.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr int kMaxSetDepth = 32;

std::string hex_escape(char32_t code) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (; code > 0 || digits.empty(); code >>= 4) digits.insert(digits.begin(), kDigits[code & 15]);
  return "\\x{" + digits + "}";
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(ErrorCode code, const std::string& problem) const {
    throw Error(code, where_ + ": the regular expression " + problem);
  }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (c == '[') {
      ++at_;
      out_ += read_set(0).expression();
      return;
    }
    if (next_is("(?")) return group();
    if (c == '{') return interval();
    out_.push_back(c);
    ++at_;
  }

  void escape() {
    if (at_ + 1 >= pattern_.size()) fail(ErrorCode::kCorrupt, "ends with a backslash");
    const char letter = pattern_[at_ + 1];
    if (const auto item = escaped_class()) {
      CharSet set;
      set.add(*item);
      out_ += item->alone.empty() ? set.expression() : item->alone;
    } else if (letter == 'b' || letter == 'B') {
      out_ += word_boundary(letter == 'B');
      at_ += 2;
    } else if (letter == 'x' || letter == 'u') {
      out_ += hex_escape(*escaped_char());
    } else {
      out_ += pattern_.substr(at_, 2);
      at_ += 2;
    }
  }

  // \s, \p{...} and their like; moves on when it is one.
  std::optional<SetItem> escaped_class() {
    const char letter = pattern_[at_ + 1];
    if (const SetItem* item = shorthand(letter)) {
      at_ += 2;
      return *item;
    }
    if ((letter != 'p' && letter != 'P') || at_ + 2 >= pattern_.size()) return std::nullopt;
    if (pattern_[at_ + 2] != '{') fail(ErrorCode::kUnsupported, "has \\p without {NAME}");
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) fail(ErrorCode::kCorrupt, "has \\p{ without }");
    const std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    at_ = end + 1;
    return property(name, letter == 'P');
  }

  char32_t read_hex(std::size_t max_digits) {
    char32_t value = 0;
    std::size_t digits = 0;
    for (; digits < max_digits && at_ < pattern_.size(); ++digits, ++at_) {
      const auto c = static_cast<unsigned char>(pattern_[at_]);
      if (!std::isxdigit(c)) break;
      value = value * 16 + static_cast<char32_t>(std::isdigit(c) ? c - '0' : std::tolower(c) - 'a' + 10);
    }
    if (digits == 0 || value > 0x10FFFF) fail(ErrorCode::kCorrupt, "has an escape that is no code point");
    return value;
  }

  // One character written as an escape, inside or outside of a set; moves on when it is one.
  std::optional<char32_t> escaped_char() {
    const char letter = pattern_[at_ + 1];
    at_ += 2;
    if (letter == 'u') return read_hex(4);
    if (letter == 'x' && next_is("{")) {
      ++at_;
      const char32_t value = read_hex(8);
      if (!next_is("}")) fail(ErrorCode::kCorrupt, "has \\x{ without }");
      ++at_;
      return value;
    }
    if (letter == 'x') return read_hex(2);
    static constexpr std::string_view kLetters = "tnrfvaeb", kValues = "\t\n\r\f\v\a\x1b\b";
    const std::size_t found = kLetters.find(letter);
    if (found != std::string_view::npos) return static_cast<char32_t>(kValues[found]);
    if (letter >= '0' && letter <= '7') return read_octal(letter);
    if (std::isalpha(static_cast<unsigned char>(letter)))
      fail(ErrorCode::kUnsupported, std::string("has \\") + letter + " in a set");
    --at_;
    return read_plain();
  }

  char32_t read_octal(char first) {
    char32_t value = static_cast<char32_t>(first - '0');
    for (int digits = 1; digits < 3 && at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '7'; ++digits)
      value = value * 8 + static_cast<char32_t>(pattern_[at_++] - '0');
    return value;
  }

  char32_t read_plain() {
    const Utf8Char next = read_char(pattern_.data() + at_);
    at_ += next.bytes;
    return next.code;
  }

  char32_t read_set_char() {
    if (at_ >= pattern_.size()) fail(ErrorCode::kCorrupt, "has a set without an end");
    if (pattern_[at_] != '\\') return read_plain();
    if (at_ + 1 >= pattern_.size()) fail(ErrorCode::kCorrupt, "ends with a backslash");
    return *escaped_char();
  }

  // After its [.
  CharSet read_set(int depth) {
    if (depth > kMaxSetDepth) fail(ErrorCode::kUnsupported, "has sets in sets, too deep");
    CharSet set;
    if (next_is("^")) {
      set.negate();
      ++at_;
    }
    for (bool is_first = true;; is_first = false) {
      if (at_ >= pattern_.size()) fail(ErrorCode::kCorrupt, "has a set without an end");
      if (next_is("]") && !is_first) break;
      read_set_item(set, depth);
    }
    ++at_;
    return set;
  }

  void read_set_item(CharSet& set, int depth) {
    if (next_is("&&")) {
      at_ += 2;
      return set.intersect();
    }
    if (next_is("[:")) return set.add(read_posix());
    if (next_is("[")) {
      ++at_;
      return set.add(read_set(depth + 1));
    }
    if (next_is("\\") && at_ + 1 < pattern_.size())
      if (auto item = escaped_class()) return set.add(*item);
    read_range(set);
  }

  SetItem read_posix() {
    const std::size_t end = pattern_.find(":]", at_ + 2);
    if (end == std::string_view::npos) fail(ErrorCode::kUnsupported, "has [: without :]");
    const std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    at_ = end + 2;
    return posix_class(name);
  }

  void read_range(CharSet& set) {
    const char32_t low = read_set_char();
    const bool is_range = next_is("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']' &&
                          pattern_[at_ + 1] != '[' && !is_class_escape(at_ + 1);
    if (!is_range) return set.add(SetItem{hex_escape(low), {}});
    ++at_;
    const char32_t high = read_set_char();
    if (high < low) fail(ErrorCode::kCorrupt, "has an empty range in a set");
    set.add(SetItem{hex_escape(low) + "-" + hex_escape(high), {}});
  }

  bool is_class_escape(std::size_t at) const {
    if (pattern_[at] != '\\' || at + 1 >= pattern_.size()) return false;
    return shorthand(pattern_[at + 1]) || pattern_[at + 1] == 'p' || pattern_[at + 1] == 'P';
  }

  // (?imx-imx) and (?imx-imx: with Ruby's m, which is PCRE2's s.
  void group() {
    out_ += "(?";
    at_ += 2;
    const std::size_t end = pattern_.find_first_not_of("imx-", at_);
    if (end == std::string_view::npos || (pattern_[end] != ')' && pattern_[end] != ':')) return;
    for (; at_ < end; ++at_) out_.push_back(pattern_[at_] == 'm' ? 's' : pattern_[at_]);
  }

  void interval() {
    const std::size_t end = pattern_.find('}', at_);
    if (next_is("{,") && end != std::string_view::npos && end > at_ + 2 &&
        pattern_.substr(at_ + 2, end - at_ - 2).find_first_not_of("0123456789") == std::string_view::npos) {
      out_ += "{0,";
      at_ += 2;
      return;
    }
    const bool is_interval =
        end != std::string_view::npos && end > at_ + 1 &&
        pattern_.substr(at_ + 1, end - at_ - 1).find_first_not_of("0123456789,") == std::string_view::npos;
    if (is_interval && end + 1 < pattern_.size() && pattern_[end + 1] == '+')
      fail(ErrorCode::kUnsupported, "repeats a repetition ({n}+)");
    out_.push_back('{');
    ++at_;
  }

  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace halfbyte::models::huggingface
