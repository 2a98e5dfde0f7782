// How statements run.
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/print.h"

namespace halfbyte::models::jinja {

Flow Data::execute(Interpreter& run) const {
  run.write(Text(text));
  return Flow::kOn;
}

Flow Print::execute(Interpreter& run) const {
  run.write(printed(run.evaluate(*value), run.heap()));
  return Flow::kOn;
}

Flow If::execute(Interpreter& run) const {
  for (const Branch& branch : branches) {
    if (!branch.test || is_true(run.evaluate(*branch.test))) return run.execute(branch.body);
  }
  return Flow::kOn;
}

Flow For::execute(Interpreter& run) const {
  std::vector<Value> all = items_of(run, run.evaluate(*items));
  if (test) {
    std::vector<Value> kept;
    for (Value& item : all) {
      const Interpreter::NewScope scope(run);
      run.assign(target, item);
      if (is_true(run.evaluate(*test))) kept.push_back(std::move(item));
    }
    all = std::move(kept);
  }
  if (all.empty()) {
    const Interpreter::NewScope scope(run);
    return run.execute(otherwise);
  }
  const Value held = run.heap().list(std::move(all));
  const auto loop = std::make_shared<LoopBox>(*held.get<std::shared_ptr<const ListBox>>());
  for (; loop->index < loop->items->items.size(); ++loop->index) {
    const Interpreter::NewScope scope(run);
    run.set("loop", Value(std::shared_ptr<const LoopBox>(loop)));
    run.assign(target, loop->items->items[loop->index]);
    if (run.execute(body) == Flow::kBreak) break;
  }
  return Flow::kOn;
}

Flow Set::execute(Interpreter& run) const {
  run.assign(target, run.evaluate(*value));
  return Flow::kOn;
}

namespace {

// What a block of its own scope writes.
Text written(Interpreter& run, const Block& body) {
  const Interpreter::NewScope scope(run);
  return run.captured(body);
}

}  // namespace

Flow SetBlock::execute(Interpreter& run) const {
  Value text = run.heap().text(written(run, body));
  run.assign(target, filter ? filtered(run, *filter, std::move(text)) : std::move(text));
  return Flow::kOn;
}

Flow FilterBlock::execute(Interpreter& run) const {
  Value text = run.heap().text(written(run, body));
  run.write(printed(filtered(run, *filter, std::move(text)), run.heap()));
  return Flow::kOn;
}

Flow Scoped::execute(Interpreter& run) const {
  std::vector<Value> values;
  for (const auto& [target, expression] : variables) values.push_back(run.evaluate(*expression));
  const Interpreter::NewScope scope(run);
  for (std::size_t i = 0; i < values.size(); ++i) run.assign(variables[i].first, values[i]);
  return run.execute(body);
}

Flow MacroDefinition::execute(Interpreter& run) const {
  run.set(macro.name, run.macro(macro));
  return Flow::kOn;
}

Flow CallBlock::execute(Interpreter& run) const {
  const Value callee = run.evaluate(*call->callee);
  Call arguments = run.call_of(call->arguments);
  const Interpreter::NewScope scope(run);
  arguments.named.emplace_back("caller", run.macro(caller));
  run.write(printed(run.call(callee, arguments), run.heap()));
  return Flow::kOn;
}

}  // namespace halfbyte::models::jinja
