#include "models/chat/jinja/interpreter.h"

#include <algorithm>
#include <ranges>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/print.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {

// What is run within something else, which takes the machine's stack.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& run) : run_(run) {
    if (run_.nesting_ >= run_.heap_.limits().nesting)
      refuse("more than " + std::to_string(run_.heap_.limits().nesting) + " levels within each other, calls included");
    ++run_.nesting_;
    run_.heap_.step();
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { --run_.nesting_; }

 private:
  Interpreter& run_;
};

Interpreter::Interpreter(Heap& heap, const Date& date) : heap_(heap), date_(date), scope_(std::make_shared<Scope>()) {}

Interpreter::NewScope::NewScope(Interpreter& run, std::shared_ptr<Scope> outer) : run_(run), before_(run.scope_) {
  run.scope_ = std::make_shared<Scope>(std::move(outer));
}

Value Interpreter::evaluate(const Expression& expression) {
  const Level level(*this);
  line_ = expression.line;
  return expression.evaluate(*this);
}

Flow Interpreter::execute(const Block& block) {
  const Level level(*this);
  for (const auto& statement : block) {
    heap_.step();
    line_ = statement->line;
    const Flow flow = statement->execute(*this);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

void Interpreter::write(const Text& text) {
  heap_.step_over(text.size());
  heap_.check_output(out_->size() + text.size());
  out_->append(text);
}

Text Interpreter::captured(const Block& block) {
  Text text;
  struct Restore {
    Text*& place;
    Text* before;
    ~Restore() { place = before; }
  } const restore{out_, std::exchange(out_, &text)};
  execute(block);
  return text;
}

Value Interpreter::variable(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->outer.get()) {
    heap_.step();
    const auto at = std::ranges::find(scope->variables, name, [](const auto& each) { return each.first; });
    if (at != scope->variables.end()) return at->second;
  }
  if (const Builtin* function = find_function(name)) return heap_.callable({.builtin = function});
  return Value::undefined(in_quotes(name) + " is undefined");
}

void Interpreter::set(std::string_view name, Value value) {
  auto& variables = scope_->variables;
  const auto at = std::ranges::find(variables, name, [](const auto& each) { return each.first; });
  if (at != variables.end()) {
    at->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const std::vector<Value> items = items_of(*this, value);
    if (items.size() != target.parts.size())
      fail(std::to_string(items.size()) + " values for " + std::to_string(target.parts.size()) + " names");
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return set(target.name, value);
  NamespaceBox* const space = variable(target.name).space();
  if (!space) fail("an attribute is set of " + in_quotes(target.name) + ", which is no namespace");
  if (target.attribute.starts_with('_')) refuse("an attribute of a namespace is called " + in_quotes(target.attribute));
  heap_.set(*space, target.attribute, value);
}

Call Interpreter::call_of(const WrittenCall& written) {
  Call call;
  for (const ExpressionPtr& each : written.positional) call.positional.push_back(evaluate(*each));
  for (const auto& [name, each] : written.named) call.named.emplace_back(name, evaluate(*each));
  return call;
}

Value Interpreter::call(const Value& callee, const Call& call) {
  if (const auto* undefined = callee.get<Undefined>()) fail(*undefined->problem);
  const CallableBox* callable = callee.callable();
  if (!callable) fail("a " + std::string(type_name(callee)) + " is called");
  return callable->macro ? call_macro(*callable, call) : run_builtin(*this, *callable->builtin, callee, call);
}

Value Interpreter::macro(const Macro& definition) { return heap_.callable({.macro = &definition, .around = scope_}); }

Value Interpreter::call_macro(const CallableBox& callable, const Call& call) {
  const Level level(*this);
  std::shared_ptr<Scope> around = callable.around.lock();
  const Macro& macro = *callable.macro;
  if (!around) refuse("the macro " + in_quotes(macro.name) + " is called where it is not known any more");
  const NewScope scope(*this, std::move(around));
  const int line = line_;
  bind(macro, call);
  Value out = heap_.text(captured(macro.body));
  line_ = line;
  return out;
}

void Interpreter::bind(const Macro& macro, const Call& call) {
  std::size_t named = 0;
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    const auto given = std::ranges::find(call.named, name, [](const auto& each) { return each.first; });
    const bool is_named = given != call.named.end();
    if (is_named && i < call.positional.size()) fail(in_quotes(macro.name) + " is given " + in_quotes(name) + " twice");
    named += is_named ? 1 : 0;
    if (i < call.positional.size()) {
      set(name, call.positional[i]);
    } else if (is_named) {
      set(name, given->second);
    } else {
      set(name,
          fallback ? evaluate(*fallback) : Value::undefined("parameter " + in_quotes(name) + " was not provided"));
    }
  }
  bind_more(macro, call, named);
}

// `caller`, which a call block gives without naming it among the parameters.
void Interpreter::bind_more(const Macro& macro, const Call& call, std::size_t named) {
  const auto is_caller = [](const auto& each) { return each.first == "caller"; };
  const auto caller = std::ranges::find_if(call.named, is_caller);
  if (caller != call.named.end()) {
    const bool is_parameter = std::ranges::any_of(macro.parameters, is_caller);
    if (!is_parameter) ++named;
    if (!is_parameter) set("caller", caller->second);
  }
  if (call.positional.size() > macro.parameters.size())
    fail("macro " + in_quotes(macro.name) + " takes not more than " + std::to_string(macro.parameters.size()) +
         " arguments");
  if (named < call.named.size())
    fail("macro " + in_quotes(macro.name) + " is given an argument by a name that it does not have");
}

Value filtered(Interpreter& run, const Expression& filter, Value text) {
  const Interpreter::NewScope scope(run);
  run.set("", std::move(text));  // a name that no template can write
  return run.evaluate(filter);
}

}  // namespace halfbyte::models::jinja
