// What expressions give.
#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/print.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {

Value Literal::evaluate(Interpreter&) const { return value; }

Value Name::evaluate(Interpreter& run) const { return run.variable(name); }

Value ListDisplay::evaluate(Interpreter& run) const {
  std::vector<Value> values;
  for (const ExpressionPtr& item : items) values.push_back(run.evaluate(*item));
  return run.heap().list(std::move(values), is_tuple ? ListKind::kTuple : ListKind::kList);
}

Value DictDisplay::evaluate(Interpreter& run) const {
  Dict dict;
  for (const auto& [key, value] : entries) {
    Value name = run.evaluate(*key);
    dict.set(std::move(name), run.evaluate(*value));
  }
  return run.heap().dict(std::move(dict));
}

Value Unary::evaluate(Interpreter& run) const { return operation(run, run.evaluate(*operand)); }

Value Binary::evaluate(Interpreter& run) const {
  const Value first = run.evaluate(*left);
  return operation(run, first, run.evaluate(*right));
}

Value Logical::evaluate(Interpreter& run) const {
  Value first = run.evaluate(*left);
  return is_true(first) == is_and ? run.evaluate(*right) : first;
}

Value Comparison::evaluate(Interpreter& run) const {
  Value one = run.evaluate(*first);
  for (const auto& [operation, expression] : others) {
    Value other = run.evaluate(*expression);
    if (!operation(run, one, other)) return Value(false);
    one = std::move(other);
  }
  return Value(true);
}

Value Concatenation::evaluate(Interpreter& run) const {
  Text text;
  for (const ExpressionPtr& part : parts) {
    const Text more = printed(run.evaluate(*part), run.heap());
    run.heap().expect(text.size() + more.size());
    text.append(more);
  }
  return run.heap().text(std::move(text));
}

Value Conditional::evaluate(Interpreter& run) const {
  if (is_true(run.evaluate(*test))) return run.evaluate(*then);
  if (otherwise) return run.evaluate(*otherwise);
  return Value::undefined("an expression with `if` has no `else`, and its condition is false");
}

Value Attribute::evaluate(Interpreter& run) const { return attribute_of(run, run.evaluate(*object), name); }

Value Subscript::evaluate(Interpreter& run) const {
  const Value whole = run.evaluate(*object);
  return item_of(run, whole, run.evaluate(*index));
}

Value Slice::evaluate(Interpreter& run) const {
  const Value whole = run.evaluate(*object);
  const auto bound = [&](const ExpressionPtr& each) { return each ? run.evaluate(*each) : Value(); };
  const Value first = bound(begin);
  const Value last = bound(end);
  return slice_of(run, whole, first, last, bound(step));
}

Value CallExpression::evaluate(Interpreter& run) const {
  const Value function = run.evaluate(*callee);
  return run.call(function, run.call_of(arguments));
}

Value FilterUse::evaluate(Interpreter& run) const {
  if (!filter) refuse("no filter is called " + in_quotes(name));
  const Value input = object ? run.evaluate(*object) : run.variable("");
  return run_builtin(run, *filter, input, run.call_of(arguments));
}

Value TestUse::evaluate(Interpreter& run) const {
  if (!test) refuse("no test is called " + in_quotes(name));
  const Value input = run.evaluate(*object);
  return Value(is_true(run_builtin(run, *test, input, run.call_of(arguments))) != is_negated);
}

}  // namespace halfbyte::models::jinja
