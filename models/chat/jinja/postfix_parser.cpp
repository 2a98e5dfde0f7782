// What follows an expression: attributes, subscripts, calls, filters, tests.
#include <charconv>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/expression_parser.h"

namespace halfbyte::models::jinja {
namespace {

// What may begin the argument of a test without parentheses.
bool begins_argument(const TokenStream& tokens) {
  const TokenKind kind = tokens.now().kind;
  if (kind == TokenKind::kName) return !tokens.is_name("else") && !tokens.is_name("or") && !tokens.is_name("and");
  return kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
         tokens.is_operator("(") || tokens.is_operator("[") || tokens.is_operator("{");
}

}  // namespace

ExpressionPtr ExpressionParser::postfix(ExpressionPtr object) {
  while (true) {
    if (tokens_.is_operator(".") || tokens_.is_operator("[")) {
      object = subscript(std::move(object));
    } else if (tokens_.is_operator("(")) {
      auto node = std::make_unique<CallExpression>();
      node->line = tokens_.line();
      tokens_.take();
      stand_on(tokens_, *node, object.get());
      node->callee = std::move(object);
      node->arguments = arguments();
      stand_on(tokens_, *node, node->arguments);
      object = std::move(node);
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr object) {
  while (true) {
    if (tokens_.is_operator("|")) {
      object = filters(std::move(object), false);
    } else if (tokens_.is_name("is")) {
      object = test(std::move(object));
    } else if (tokens_.is_operator("(")) {  // of what a filter gave
      object = postfix(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const int line = tokens_.line();
  if (tokens_.skip_operator(".") && tokens_.is(TokenKind::kName)) {
    auto node = std::make_unique<Attribute>();
    node->line = line;
    stand_on(tokens_, *node, object.get());
    node->name = tokens_.take().text;
    node->object = std::move(object);
    return node;
  }
  const bool is_number = tokens_.is(TokenKind::kInteger);  // behind the point: list.0
  if (!is_number && !tokens_.skip_operator("[")) tokens_.unexpected("a name");
  ExpressionPtr begin = is_number ? number() : tokens_.is_operator(":") ? nullptr : tuple();
  if (is_number || !tokens_.is_operator(":")) {
    auto node = std::make_unique<Subscript>();
    node->line = line;
    stand_on(tokens_, *node, object.get());
    node->object = std::move(object);
    node->index = std::move(begin);
    stand_on(tokens_, *node, node->index.get());
    if (!is_number) tokens_.expect_operator("]");
    return node;
  }
  auto node = std::make_unique<Slice>();
  node->line = line;
  stand_on(tokens_, *node, object.get());
  node->object = std::move(object);
  node->begin = std::move(begin);
  tokens_.expect_operator(":");
  if (!tokens_.is_operator(":") && !tokens_.is_operator("]")) node->end = expression();
  if (tokens_.skip_operator(":") && !tokens_.is_operator("]")) node->step = expression();
  tokens_.expect_operator("]");
  for (const ExpressionPtr* part : {&node->begin, &node->end, &node->step}) stand_on(tokens_, *node, part->get());
  return node;
}

WrittenCall ExpressionParser::arguments() {
  WrittenCall call;
  bool is_first = true;
  while (!tokens_.skip_operator(")")) {
    if (!is_first) tokens_.expect_operator(",");
    if (tokens_.skip_operator(")")) break;
    is_first = false;
    if (tokens_.is_operator("*") || tokens_.is_operator("**"))
      tokens_.fail("a list or dict in the place of arguments is not known here");
    const bool is_named =
        tokens_.is(TokenKind::kName) && tokens_.next().kind == TokenKind::kOperator && tokens_.next().text == "=";
    if (is_named) {
      std::string name = tokens_.take().text;
      tokens_.take();
      call.named.emplace_back(std::move(name), expression());
    } else {
      if (!call.named.empty()) tokens_.fail("an argument without a name behind one with a name");
      call.positional.push_back(expression());
    }
  }
  return call;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr object, bool begins_without_bar) {
  if (begins_without_bar) object = filter(std::move(object));
  while (tokens_.skip_operator("|")) object = filter(std::move(object));
  return object;
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.expect_name();
  while (tokens_.skip_operator(".")) name += "." + tokens_.expect_name();
  return name;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr object) {
  auto node = std::make_unique<FilterUse>();
  node->line = tokens_.line();
  node->name = dotted_name();
  node->filter = find_filter(node->name);
  if (!node->filter && !is_conditional_) tokens_.fail("no filter is called " + in_quotes(node->name));
  stand_on(tokens_, *node, object.get());
  node->object = std::move(object);
  if (tokens_.skip_operator("(")) node->arguments = arguments();
  stand_on(tokens_, *node, node->arguments);
  return node;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr object) {
  auto node = std::make_unique<TestUse>();
  node->line = tokens_.line();
  tokens_.take();
  node->is_negated = tokens_.skip_name("not");
  node->name = dotted_name();
  node->test = find_test(node->name);
  if (!node->test && !is_conditional_) tokens_.fail("no test is called " + in_quotes(node->name));
  stand_on(tokens_, *node, object.get());
  node->object = std::move(object);
  if (tokens_.skip_operator("(")) {
    node->arguments = arguments();
  } else if (begins_argument(tokens_)) {
    if (tokens_.is_name("is")) tokens_.fail("a test behind a test");
    node->arguments.positional.push_back(postfixed());
  }
  stand_on(tokens_, *node, node->arguments);
  return node;
}

}  // namespace halfbyte::models::jinja
