// Source: jinja2/parser.py, and transformers' AssistantTracker for `generation`.
#include "models/chat/jinja/parser.h"

#include <algorithm>

#include "models/chat/jinja/expression_parser.h"

namespace halfbyte::models::jinja {
namespace {

using Names = std::vector<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  Block run() { return block({}); }

 private:
  struct Row {
    std::string_view name;
    std::unique_ptr<Statement> (Parser::*parse)();
  };

  // Up to a tag with one of these names, which is left behind its `{%`; at the template's end there are none.
  Block block(const Names& ends) {
    const Nested nested(depth_, tokens_);
    Block out;
    while (!tokens_.is(TokenKind::kEnd)) {
      const int line = tokens_.line();
      std::unique_ptr<Statement> one;
      if (tokens_.is(TokenKind::kData)) {
        auto data = std::make_unique<Data>();
        data->text = tokens_.take().text;
        one = std::move(data);
      } else if (tokens_.is(TokenKind::kPrintBegin)) {
        one = print();
      } else {
        tokens_.take();
        if (std::ranges::any_of(ends, [&](auto end) { return tokens_.is_name(end); })) return out;
        one = statement();
      }
      one->line = line;
      out.push_back(std::move(one));
    }
    if (!ends.empty()) tokens_.unexpected("{% " + std::string(ends.back()) + " %}");
    return out;
  }

  void end_tag() { tokens_.expect(TokenKind::kBlockEnd, "\"%}\""); }

  // A body that ends with {% NAME %}.
  Block body(std::string_view end) {
    end_tag();
    Block out = block({end});
    tokens_.take();
    end_tag();
    return out;
  }

  std::unique_ptr<Statement> print() {
    tokens_.take();
    auto node = std::make_unique<Print>();
    node->value = expressions_.tuple();
    tokens_.expect(TokenKind::kPrintEnd, "\"}}\"");
    return node;
  }

  std::unique_ptr<Statement> statement() {
    static constexpr Row kRows[] = {{"if", &Parser::parse_if},       {"for", &Parser::parse_for},
                                    {"set", &Parser::parse_set},     {"macro", &Parser::parse_macro},
                                    {"call", &Parser::parse_call},   {"filter", &Parser::parse_filter},
                                    {"with", &Parser::parse_with},   {"generation", &Parser::parse_generation},
                                    {"break", &Parser::parse_break}, {"continue", &Parser::parse_continue}};
    const auto* row = std::ranges::find_if(kRows, [&](const Row& each) { return tokens_.is_name(each.name); });
    if (row == std::end(kRows)) tokens_.fail("no statement is called " + in_quotes(tokens_.now().text));
    tokens_.take();
    return (this->*row->parse)();
  }

  std::unique_ptr<Statement> parse_if() {
    auto node = std::make_unique<If>();
    expressions_.set_conditional(++conditions_ > 0);
    node->branches.push_back({expressions_.tuple(false), {}});
    while (true) {
      end_tag();
      const bool is_else = !node->branches.back().test;
      node->branches.back().body = block(is_else ? Names{"endif"} : Names{"elif", "else", "endif"});
      const std::string word = tokens_.take().text;
      if (word == "endif") break;
      node->branches.push_back({word == "elif" ? expressions_.tuple(false) : nullptr, {}});
    }
    end_tag();
    expressions_.set_conditional(--conditions_ > 0);
    return node;
  }

  Target one_target(bool has_attributes) {
    Target out;
    out.line = tokens_.line();
    if (tokens_.skip_operator("(")) {
      const Nested nested(depth_, tokens_);
      out = target(false);
      tokens_.expect_operator(")");
      return out;
    }
    out.name = tokens_.expect_name();
    if (has_attributes && tokens_.skip_operator(".")) out.attribute = tokens_.expect_name();
    constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::ranges::find(kConstants, out.name) != std::end(kConstants))
      tokens_.fail("nothing can be given to " + in_quotes(out.name));
    return out;
  }

  Target target(bool has_attributes) {
    Target first = one_target(has_attributes);
    if (!tokens_.is_operator(",")) return first;
    Target out;
    out.line = first.line;
    out.parts.push_back(std::move(first));
    while (tokens_.skip_operator(",") && (tokens_.is(TokenKind::kName) || tokens_.is_operator("(")) &&
           !tokens_.is_name("in"))
      out.parts.push_back(one_target(has_attributes));
    return out;
  }

  std::unique_ptr<Statement> parse_for() {
    auto node = std::make_unique<For>();
    node->target = target(false);
    if (!tokens_.skip_name("in")) tokens_.unexpected("\"in\"");
    node->items = expressions_.tuple(false);
    if (tokens_.skip_name("if")) node->test = expressions_.expression();
    if (tokens_.is_name("recursive")) tokens_.fail("recursive loops are not known here");
    end_tag();
    ++loops_;
    node->body = block({"else", "endfor"});
    --loops_;
    if (tokens_.take().text == "else") {
      end_tag();
      node->otherwise = block({"endfor"});
      tokens_.take();
    }
    end_tag();
    return node;
  }

  std::unique_ptr<Statement> parse_set() {
    Target where = target(true);
    if (tokens_.skip_operator("=")) {
      auto node = std::make_unique<Set>();
      node->target = std::move(where);
      node->value = expressions_.tuple();
      end_tag();
      return node;
    }
    auto node = std::make_unique<SetBlock>();
    node->target = std::move(where);
    node->filter = expressions_.filters(nullptr, false);
    node->body = body("endset");
    return node;
  }

  // Of a macro or a call block; behind the opening parenthesis.
  void parameters(Macro& macro) {
    bool is_first = true;
    while (!tokens_.skip_operator(")")) {
      if (!std::exchange(is_first, false)) tokens_.expect_operator(",");
      std::string name = tokens_.expect_name();
      ExpressionPtr value = tokens_.skip_operator("=") ? expressions_.expression() : nullptr;
      if (!value && !macro.parameters.empty() && macro.parameters.back().second)
        tokens_.fail("a parameter without a default behind one with a default");
      macro.parameters.emplace_back(std::move(name), std::move(value));
    }
  }

  void macro_body(Macro& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macro.body = body(end);
    loops_ = loops;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto node = std::make_unique<MacroDefinition>();
    node->macro.line = tokens_.line();
    node->macro.name = tokens_.expect_name();
    tokens_.expect_operator("(");
    parameters(node->macro);
    macro_body(node->macro, "endmacro");
    return node;
  }

  std::unique_ptr<Statement> parse_call() {
    auto node = std::make_unique<CallBlock>();
    node->caller.line = tokens_.line();
    node->caller.name = "caller";
    if (tokens_.skip_operator("(")) parameters(node->caller);
    ExpressionPtr call = expressions_.postfixed();
    auto* const written = dynamic_cast<CallExpression*>(call.get());
    if (!written) tokens_.unexpected("a call");
    static_cast<void>(call.release());
    node->call.reset(written);
    macro_body(node->caller, "endcall");
    return node;
  }

  std::unique_ptr<Statement> parse_filter() {
    auto node = std::make_unique<FilterBlock>();
    node->filter = expressions_.filters(nullptr, true);
    node->body = body("endfilter");
    return node;
  }

  std::unique_ptr<Statement> parse_with() {
    auto node = std::make_unique<Scoped>();
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!node->variables.empty()) tokens_.expect_operator(",");
      Target where = one_target(false);
      tokens_.expect_operator("=");
      node->variables.emplace_back(std::move(where), expressions_.expression());
    }
    node->body = body("endwith");
    return node;
  }

  std::unique_ptr<Statement> parse_generation() {
    auto node = std::make_unique<Scoped>();
    const int loops = std::exchange(loops_, 0);
    node->body = body("endgeneration");
    loops_ = loops;
    return node;
  }

  std::unique_ptr<Statement> leave(Flow how) {
    if (loops_ == 0) tokens_.fail("it stands outside of a loop");
    auto node = std::make_unique<Leave>();
    node->how = how;
    end_tag();
    return node;
  }
  std::unique_ptr<Statement> parse_break() { return leave(Flow::kBreak); }
  std::unique_ptr<Statement> parse_continue() { return leave(Flow::kContinue); }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;       // that are open
  int conditions_ = 0;  // the same
};

}  // namespace

Block parse_template(std::string_view source) { return Parser(tokens_of(source)).run(); }

}  // namespace halfbyte::models::jinja
