// Expressions of a template: jinja2's grammar.
#pragma once

#include <optional>
#include <string_view>

#include "models/chat/jinja/syntax.h"
#include "models/chat/jinja/token_stream.h"

namespace halfbyte::models::jinja {

constexpr int kMaxNesting = 100;  // of parentheses, or statements, within each other
constexpr int kMaxDepth = 200;    // of nodes, such as those of a long sum

// Counts how deep a parser has gone. Errors: kUnsupported beyond kMaxNesting.
class Nested {
 public:
  Nested(int& depth, const TokenStream& tokens) : depth_(depth) {
    if (++depth_ > kMaxNesting) {
      --depth_;
      tokens.fail("more than " + std::to_string(kMaxNesting) + " levels within each other");
    }
  }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() { --depth_; }

 private:
  int& depth_;
};

// Says what a node stands on, which bounds how deep nodes nest. Errors: kUnsupported beyond kMaxDepth.
void stand_on(const TokenStream& tokens, Expression& node, const Expression* part);
void stand_on(const TokenStream& tokens, Expression& node, const WrittenCall& call);

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // Within an `if`, a filter or a test that is not known is an error only where it is run, as jinja2 has it.
  void set_conditional(bool is_conditional) noexcept { is_conditional_ = is_conditional; }

  // One or, with commas between them, a tuple of some. `has_condition`: `a if b else c` is one.
  ExpressionPtr tuple(bool has_condition = true);
  ExpressionPtr expression(bool has_condition = true);
  // `|name` and more of them, on `object`, which is null in filter blocks. The first bar may be left out.
  ExpressionPtr filters(ExpressionPtr object, bool begins_without_bar);
  WrittenCall arguments();  // behind the opening parenthesis
  ExpressionPtr postfixed();

 private:
  ExpressionPtr conditional();
  ExpressionPtr logical(bool is_and);
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr binary(std::size_t level);
  ExpressionPtr concatenation();
  ExpressionPtr unary(bool has_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr number();
  ExpressionPtr string();
  ExpressionPtr in_parentheses();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr filters_and_tests(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr test(ExpressionPtr object);
  ExpressionPtr filter(ExpressionPtr object);
  std::string dotted_name();

  TokenStream& tokens_;
  int depth_ = 0;
  bool is_conditional_ = false;
};

}  // namespace halfbyte::models::jinja
