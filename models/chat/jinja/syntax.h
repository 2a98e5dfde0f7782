// A parsed template: expressions that give a value, and statements that write.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

class Interpreter;
struct Builtin;

struct Expression {
  int line = 0;
  int depth = 1;  // of expressions within each other
  virtual ~Expression() = default;
  virtual Value evaluate(Interpreter& run) const = 0;
};
using ExpressionPtr = std::unique_ptr<Expression>;

// What a statement leaves a loop by.
enum class Flow { kOn, kBreak, kContinue };

struct Statement {
  int line = 0;
  virtual ~Statement() = default;
  virtual Flow execute(Interpreter& run) const = 0;
};
using Block = std::vector<std::unique_ptr<Statement>>;

struct Literal final : Expression {
  Value value;
  Value evaluate(Interpreter& run) const override;
};
struct Name final : Expression {
  std::string name;
  Value evaluate(Interpreter& run) const override;
};
struct ListDisplay final : Expression {
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  Value evaluate(Interpreter& run) const override;
};
struct DictDisplay final : Expression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  Value evaluate(Interpreter& run) const override;
};

using UnaryFunction = Value (*)(Interpreter&, const Value&);
struct Unary final : Expression {
  UnaryFunction operation;
  ExpressionPtr operand;
  Value evaluate(Interpreter& run) const override;
};
using BinaryFunction = Value (*)(Interpreter&, const Value&, const Value&);
struct Binary final : Expression {
  BinaryFunction operation;
  ExpressionPtr left;
  ExpressionPtr right;
  Value evaluate(Interpreter& run) const override;
};
struct Logical final : Expression {  // `and`, `or`: one of the operands
  bool is_and = false;
  ExpressionPtr left;
  ExpressionPtr right;
  Value evaluate(Interpreter& run) const override;
};
using ComparisonFunction = bool (*)(Interpreter&, const Value&, const Value&);
struct Comparison final : Expression {  // a < b <= c
  ExpressionPtr first;
  std::vector<std::pair<ComparisonFunction, ExpressionPtr>> others;
  Value evaluate(Interpreter& run) const override;
};
struct Concatenation final : Expression {  // a ~ b
  std::vector<ExpressionPtr> parts;
  Value evaluate(Interpreter& run) const override;
};
struct Conditional final : Expression {
  ExpressionPtr test;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // may be null
  Value evaluate(Interpreter& run) const override;
};
struct Attribute final : Expression {
  ExpressionPtr object;
  std::string name;
  Value evaluate(Interpreter& run) const override;
};
struct Subscript final : Expression {
  ExpressionPtr object;
  ExpressionPtr index;
  Value evaluate(Interpreter& run) const override;
};
struct Slice final : Expression {
  ExpressionPtr object;
  ExpressionPtr begin;  // these may be null
  ExpressionPtr end;
  ExpressionPtr step;
  Value evaluate(Interpreter& run) const override;
};

struct WrittenCall {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct CallExpression final : Expression {
  ExpressionPtr callee;
  WrittenCall arguments;
  Value evaluate(Interpreter& run) const override;
};
struct FilterUse final : Expression {
  const Builtin* filter;  // null: there is none of this name, which is an error where it is run
  std::string name;
  ExpressionPtr object;  // null: what stands in a filter block
  WrittenCall arguments;
  Value evaluate(Interpreter& run) const override;
};
struct TestUse final : Expression {
  const Builtin* test;  // as a filter's
  std::string name;
  bool is_negated = false;
  ExpressionPtr object;
  WrittenCall arguments;
  Value evaluate(Interpreter& run) const override;
};

// Where a value goes: a name, a namespace's attribute, or several of them.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;  // of a tuple; then the others are empty
  int line = 0;
};

struct Data final : Statement {
  std::string text;
  Flow execute(Interpreter& run) const override;
};
struct Print final : Statement {
  ExpressionPtr value;
  Flow execute(Interpreter& run) const override;
};
struct If final : Statement {
  struct Branch {
    ExpressionPtr test;  // null: else
    Block body;
  };
  std::vector<Branch> branches;
  Flow execute(Interpreter& run) const override;
};
struct For final : Statement {
  Target target;
  ExpressionPtr items;
  ExpressionPtr test;  // may be null
  Block body;
  Block otherwise;
  Flow execute(Interpreter& run) const override;
};
struct Set final : Statement {
  Target target;
  ExpressionPtr value;
  Flow execute(Interpreter& run) const override;
};
struct SetBlock final : Statement {
  Target target;
  Block body;
  ExpressionPtr filter;  // of what the body wrote; may be null
  Flow execute(Interpreter& run) const override;
};
struct FilterBlock final : Statement {
  Block body;
  ExpressionPtr filter;
  Flow execute(Interpreter& run) const override;
};
struct Scoped final : Statement {  // `with`, `generation`
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
  Flow execute(Interpreter& run) const override;
};
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with a default or null
  Block body;
  int line = 0;
};
struct MacroDefinition final : Statement {
  Macro macro;
  Flow execute(Interpreter& run) const override;
};
struct CallBlock final : Statement {
  Macro caller;
  std::unique_ptr<CallExpression> call;
  Flow execute(Interpreter& run) const override;
};
struct Leave final : Statement {
  Flow how = Flow::kBreak;
  Flow execute(Interpreter&) const override { return how; }
};

}  // namespace halfbyte::models::jinja
