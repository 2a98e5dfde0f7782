// The tokens of a template as its parser goes through them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/lexer.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const noexcept { return tokens_[at_]; }
  const Token& next() const noexcept { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const noexcept { return now().line; }
  bool is(TokenKind kind) const noexcept { return now().kind == kind; }
  bool is(TokenKind kind, std::string_view text) const noexcept { return is(kind) && now().text == text; }
  bool is_name(std::string_view name) const noexcept { return is(TokenKind::kName, name); }
  bool is_operator(std::string_view text) const noexcept { return is(TokenKind::kOperator, text); }

  Token take() { return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_.back(); }
  bool skip_name(std::string_view name) { return is_name(name) && skip(); }
  bool skip_operator(std::string_view text) { return is_operator(text) && skip(); }

  std::string expect_name() {
    if (!is(TokenKind::kName)) unexpected("a name");
    return take().text;
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) unexpected(in_quotes(text));
  }
  void expect(TokenKind kind, const std::string& wanted) {
    if (!is(kind)) unexpected(wanted);
    take();
  }

  [[noreturn]] void fail(const std::string& problem) const {
    refuse("line " + std::to_string(line()) + ": " + problem);
  }
  [[noreturn]] void unexpected(const std::string& wanted) const {
    fail("found " + shown(now()) + ", wanted " + wanted);
  }

 private:
  bool skip() {
    take();
    return true;
  }
  static std::string shown(const Token& token) {
    switch (token.kind) {
      case TokenKind::kEnd:
        return "the template's end";
      case TokenKind::kPrintEnd:
        return "\"}}\"";
      case TokenKind::kBlockEnd:
        return "\"%}\"";
      case TokenKind::kData:
      case TokenKind::kPrintBegin:
      case TokenKind::kBlockBegin:
        return "text";
      default:
        return in_quotes(token.text);
    }
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace halfbyte::models::jinja
