// Source: jinja2/parser.py.
#include "models/chat/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/operators.h"

namespace halfbyte::models::jinja {
namespace {

template <class Node>
std::unique_ptr<Node> made(int line) {
  auto node = std::make_unique<Node>();
  node->line = line;
  return node;
}

template <class... Parts>
void stand_on_all(const TokenStream& tokens, Expression& node, const Parts&... parts) {
  (stand_on(tokens, node, parts.get()), ...);
}

ExpressionPtr literal(Value value, int line) {
  auto node = made<Literal>(line);
  node->value = std::move(value);
  return node;
}

// Without a heap: it lives as long as the template.
Value text_value(std::string bytes) {
  const std::size_t characters = character_count(bytes);
  return Value(std::shared_ptr<const StringBox>(new StringBox{Text(std::move(bytes)), characters}));
}

// Of binary operators, those that bind least first; ~ stands between.
constexpr std::array<std::array<std::string_view, 4>, 3> kLevels = {
    {{"+", "-", "", ""}, {"*", "/", "//", "%"}, {"**", "", "", ""}}};
constexpr std::size_t kSums = 0;
constexpr std::size_t kProducts = 1;

}  // namespace

void stand_on(const TokenStream& tokens, Expression& node, const Expression* part) {
  if (part) node.depth = std::max(node.depth, part->depth + 1);
  if (node.depth > kMaxDepth) tokens.fail("an expression that is nested deeper than " + std::to_string(kMaxDepth));
}

void stand_on(const TokenStream& tokens, Expression& node, const WrittenCall& call) {
  for (const ExpressionPtr& part : call.positional) stand_on(tokens, node, part.get());
  for (const auto& [name, part] : call.named) stand_on(tokens, node, part.get());
}

ExpressionPtr ExpressionParser::tuple(bool has_condition) {
  const int line = tokens_.line();
  ExpressionPtr first = expression(has_condition);
  if (!tokens_.is_operator(",")) return first;
  auto node = made<ListDisplay>(line);
  node->is_tuple = true;
  stand_on_all(tokens_, *node, first);
  node->items.push_back(std::move(first));
  while (tokens_.skip_operator(",")) {
    const bool is_end = tokens_.is(TokenKind::kBlockEnd) || tokens_.is(TokenKind::kPrintEnd) ||
                        tokens_.is_operator(")") || tokens_.is_operator("]");
    if (is_end) break;
    node->items.push_back(expression(has_condition));
    stand_on_all(tokens_, *node, node->items.back());
  }
  return node;
}

ExpressionPtr ExpressionParser::expression(bool has_condition) {
  const Nested nested(depth_, tokens_);
  return has_condition ? conditional() : logical(false);
}

ExpressionPtr ExpressionParser::conditional() {
  ExpressionPtr value = logical(false);
  while (tokens_.is_name("if")) {
    auto node = made<Conditional>(tokens_.line());
    tokens_.take();
    node->test = logical(false);
    node->then = std::move(value);
    if (tokens_.skip_name("else")) node->otherwise = expression();
    stand_on_all(tokens_, *node, node->test, node->then, node->otherwise);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::logical(bool is_and) {
  const auto part = [&] { return is_and ? negation() : logical(true); };
  ExpressionPtr left = part();
  while (tokens_.is_name(is_and ? "and" : "or")) {
    auto node = made<Logical>(tokens_.line());
    tokens_.take();
    node->is_and = is_and;
    node->left = std::move(left);
    node->right = part();
    stand_on_all(tokens_, *node, node->left, node->right);
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Nested nested(depth_, tokens_);
  auto node = made<Unary>(tokens_.line());
  tokens_.take();
  node->operation = find_unary("not");
  node->operand = negation();
  stand_on_all(tokens_, *node, node->operand);
  return node;
}

ExpressionPtr ExpressionParser::comparison() {
  ExpressionPtr first = binary(kSums);
  auto node = made<Comparison>(tokens_.line());
  while (true) {
    std::string name = tokens_.now().text;
    const bool is_not_in =
        tokens_.is_name("not") && tokens_.next().kind == TokenKind::kName && tokens_.next().text == "in";
    if (is_not_in) name = "not in";
    const bool may_be = tokens_.is(TokenKind::kOperator) || tokens_.is_name("in") || is_not_in;
    const ComparisonFunction found = may_be ? find_comparison(name) : nullptr;
    if (!found) break;
    tokens_.take();
    if (is_not_in) tokens_.take();
    node->others.emplace_back(found, binary(kSums));
    stand_on_all(tokens_, *node, node->others.back().second);
  }
  if (node->others.empty()) return first;
  node->first = std::move(first);
  stand_on_all(tokens_, *node, node->first);
  return node;
}

ExpressionPtr ExpressionParser::binary(std::size_t level) {
  const auto part = [&] {
    if (level == kSums) return concatenation();
    return level + 1 < kLevels.size() ? binary(level + 1) : unary(true);
  };
  const auto is_here = [&] {
    return tokens_.is(TokenKind::kOperator) &&
           std::ranges::find(kLevels[level], tokens_.now().text) != kLevels[level].end();
  };
  ExpressionPtr left = part();
  while (is_here()) {
    auto node = made<Binary>(tokens_.line());
    node->operation = find_binary(tokens_.take().text);
    node->left = std::move(left);
    node->right = part();
    stand_on_all(tokens_, *node, node->left, node->right);
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = binary(kProducts);
  if (!tokens_.is_operator("~")) return first;
  auto node = made<Concatenation>(tokens_.line());
  stand_on_all(tokens_, *node, first);
  node->parts.push_back(std::move(first));
  while (tokens_.skip_operator("~")) {
    node->parts.push_back(binary(kProducts));
    stand_on_all(tokens_, *node, node->parts.back());
  }
  return node;
}

ExpressionPtr ExpressionParser::unary(bool has_filters) {
  const int line = tokens_.line();
  const bool is_sign = tokens_.is_operator("-") || tokens_.is_operator("+");
  ExpressionPtr value;
  if (is_sign) {
    const Nested nested(depth_, tokens_);
    auto node = made<Unary>(line);
    node->operation = find_unary(tokens_.take().text);
    node->operand = unary(false);
    stand_on_all(tokens_, *node, node->operand);
    value = std::move(node);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return has_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::postfixed() { return postfix(primary()); }

ExpressionPtr ExpressionParser::primary() {
  if (tokens_.is(TokenKind::kName)) return name_or_constant();
  if (tokens_.is(TokenKind::kString)) return string();
  if (tokens_.is(TokenKind::kInteger) || tokens_.is(TokenKind::kFloat)) return number();
  if (tokens_.is_operator("(")) return in_parentheses();
  if (tokens_.is_operator("[")) return list();
  if (tokens_.is_operator("{")) return dict();
  tokens_.unexpected("an expression");
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const int line = tokens_.line();
  std::string name = tokens_.take().text;
  if (name == "true" || name == "True") return literal(Value(true), line);
  if (name == "false" || name == "False") return literal(Value(false), line);
  if (name == "none" || name == "None") return literal(Value(), line);
  auto node = made<Name>(line);
  node->name = std::move(name);
  return node;
}

ExpressionPtr ExpressionParser::number() {
  const bool is_float = tokens_.is(TokenKind::kFloat);
  const int line = tokens_.line();
  const std::string digits = tokens_.take().text;
  const char* const end = digits.data() + digits.size();
  double real = 0;
  std::int64_t whole = 0;
  const auto error =
      is_float ? std::from_chars(digits.data(), end, real).ec : std::from_chars(digits.data(), end, whole).ec;
  if (error != std::errc()) tokens_.fail("the number " + in_quotes(digits) + " is too large");
  return literal(is_float ? Value(real) : Value(whole), line);
}

ExpressionPtr ExpressionParser::string() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.is(TokenKind::kString)) text += tokens_.take().text;
  return literal(text_value(std::move(text)), line);
}

ExpressionPtr ExpressionParser::in_parentheses() {
  const int line = tokens_.line();
  tokens_.take();
  if (tokens_.skip_operator(")")) {
    auto node = made<ListDisplay>(line);
    node->is_tuple = true;
    return node;
  }
  ExpressionPtr value = tuple();
  tokens_.expect_operator(")");
  return value;
}

ExpressionPtr ExpressionParser::list() {
  auto node = made<ListDisplay>(tokens_.line());
  tokens_.take();
  while (!tokens_.skip_operator("]")) {
    if (!node->items.empty()) tokens_.expect_operator(",");
    if (tokens_.skip_operator("]")) break;
    node->items.push_back(expression());
    stand_on_all(tokens_, *node, node->items.back());
  }
  return node;
}

ExpressionPtr ExpressionParser::dict() {
  auto node = made<DictDisplay>(tokens_.line());
  tokens_.take();
  while (!tokens_.skip_operator("}")) {
    if (!node->entries.empty()) tokens_.expect_operator(",");
    if (tokens_.skip_operator("}")) break;
    ExpressionPtr key = expression();
    tokens_.expect_operator(":");
    node->entries.emplace_back(std::move(key), expression());
    stand_on_all(tokens_, *node, node->entries.back().first, node->entries.back().second);
  }
  return node;
}

}  // namespace halfbyte::models::jinja
