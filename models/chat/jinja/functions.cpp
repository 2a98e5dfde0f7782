// What a template can call by name: jinja2's globals, and transformers'.
#include <algorithm>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/print.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {
namespace {

// Source: MAX_RANGE of jinja2/sandbox.py.
constexpr std::int64_t kMaxRange = 100'000;

Value range(Interpreter& run, const Value&, const Arguments& arguments) {
  const bool has_end = arguments.has(1);
  const std::int64_t begin = has_end ? arguments.integer_or(0, 0) : 0;
  const std::int64_t end = arguments.integer_or(has_end ? 1 : 0, 0);
  const std::int64_t step = arguments.integer_or(2, 1);
  if (step == 0) fail("a range's step is 0");
  std::vector<Value> items;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (static_cast<std::int64_t>(items.size()) >= kMaxRange)
      refuse("a range has more than " + std::to_string(kMaxRange) + " numbers");
    items.push_back(Value(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  run.heap().step(items.size());
  return run.heap().list(std::move(items), ListKind::kRange);
}

// dict(other or pairs, name=value).
Dict dict_from(Interpreter& run, const Call& call) {
  if (call.positional.size() > 1) fail("dict takes one argument without a name");
  Dict out;
  if (!call.positional.empty()) {
    const Value& from = call.positional.front();
    if (const DictBox* other = from.dict()) {
      out = other->entries;
    } else {
      for (const Value& pair : items_of(run, from)) {
        const std::vector<Value> both = items_of(run, pair);
        if (both.size() != 2) fail("dict wants pairs");
        out.set(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : call.named) out.set(run.heap().text(name), value);
  run.heap().step(out.size());
  return out;
}

Value dict(Interpreter& run, const Value&, const Arguments& arguments) {
  return run.heap().dict(dict_from(run, arguments.call()));
}

Value make_namespace(Interpreter& run, const Value&, const Arguments& arguments) {
  Value out = run.heap().space();
  const Dict attributes = dict_from(run, arguments.call());
  for (const auto& [key, value] : attributes.entries()) {
    if (!key.text()) fail("a namespace's attribute has a name that is no string");
    if (key.text()->view().starts_with('_'))
      refuse("an attribute of a namespace is called " + in_quotes(key.text()->view()));
    run.heap().set(*out.space(), key.text()->view(), value);
  }
  return out;
}

Value raise_exception(Interpreter& run, const Value&, const Arguments& arguments) {
  throw Refused("it refuses this conversation: " + printable(printed(arguments.at(0), run.heap()).view()));
}

Value strftime_now(Interpreter& run, const Value&, const Arguments& arguments) {
  run.heap().step_over(arguments.text(0).size() * 8);
  return run.heap().text(formatted_date(run.date(), arguments.text(0).view()));
}

// A joiner says nothing the first time that it is called; what it says then is held like a generator's item.
constexpr Builtin kJoin{"joiner", "", [](Interpreter& run, const Value& self, const Arguments&) {
                          const ListBox& held = *self.list();
                          return std::exchange(held.is_spent, true) ? held.items.front() : run.heap().text(Text());
                        }};

Value joiner(Interpreter& run, const Value&, const Arguments& arguments) {
  const Value held = run.heap().list({arguments.value_or(0, run.heap().text(", "))}, ListKind::kGenerator);
  return run.heap().callable({.builtin = &kJoin, .self = held});
}

constexpr Builtin kRows[] = {
    {"range", "start | stop step", range},    {"dict", "*", dict},
    {"namespace", "*", make_namespace},       {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now}, {"joiner", "| sep", joiner},
};

}  // namespace

std::span<const Builtin> functions() noexcept { return kRows; }

}  // namespace halfbyte::models::jinja
