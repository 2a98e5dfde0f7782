// map, select and their kin: filters that take another filter or a test by its name. Source: jinja2/filters.py.
#include <algorithm>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {
namespace {

const Value* named(const Call& call, std::string_view name) {
  const auto found = std::ranges::find_if(call.named, [&](const auto& each) { return each.first == name; });
  return found == call.named.end() ? nullptr : &found->second;
}

// A call without its first arguments, which were the filter's own.
Call behind(const Call& call, std::size_t count) {
  Call out;
  for (std::size_t i = count; i < call.positional.size(); ++i) out.positional.push_back(call.positional[i]);
  out.named = call.named;
  return out;
}

const std::string& name_at(const Call& call, std::size_t index) {
  const Text* text = index < call.positional.size() ? call.positional[index].text() : nullptr;
  if (!text) fail("a filter or a test is wanted by its name");
  return text->bytes();
}

// Of what is not true there is nothing to go through, whatever it is.
std::vector<Value> items_if_true(Interpreter& run, const Value& value) {
  return is_true(value) ? items_of(run, value) : std::vector<Value>();
}

Value map(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Call& call = arguments.call();
  std::vector<Value> out;
  if (const Value* attribute = named(call, "attribute"); attribute && call.positional.empty()) {
    const Value* fallback = named(call, "default");
    for (const Value& item : items_if_true(run, self)) {
      Value value = item_by_path(run, item, *attribute);
      out.push_back(value.is_undefined() && fallback ? *fallback : std::move(value));
    }
    return run.heap().list(std::move(out), ListKind::kGenerator);
  }
  const std::string& name = name_at(call, 0);
  const Builtin* filter = find_filter(name);
  if (!filter) refuse("no filter is called " + in_quotes(name));
  const Call rest = behind(call, 1);
  for (const Value& item : items_if_true(run, self)) {
    run.heap().step();
    out.push_back(run_builtin(run, *filter, item, rest));
  }
  return run.heap().list(std::move(out), ListKind::kGenerator);
}

// Those of which the test holds, or the others; without a test those that are true.
Value select(Interpreter& run, const Value& self, const Call& call, bool by_attribute, bool is_wanted) {
  const std::size_t at = by_attribute ? 1 : 0;
  if (by_attribute && call.positional.empty()) fail("an attribute is wanted");
  const Builtin* test = nullptr;
  if (call.positional.size() > at) {
    const std::string& name = name_at(call, at);
    test = find_test(name);
    if (!test) refuse("no test is called " + in_quotes(name));
  }
  const Call rest = behind(call, at + 1);
  std::vector<Value> out;
  for (Value& item : items_if_true(run, self)) {
    run.heap().step();
    const Value value = by_attribute ? item_by_path(run, item, call.positional.front()) : item;
    const bool holds = is_true(test ? run_builtin(run, *test, value, rest) : value);
    if (holds == is_wanted) out.push_back(std::move(item));
  }
  return run.heap().list(std::move(out), ListKind::kGenerator);
}

template <bool kByAttribute, bool kIsWanted>
Value selected(Interpreter& run, const Value& self, const Arguments& arguments) {
  return select(run, self, arguments.call(), kByAttribute, kIsWanted);
}

constexpr Builtin kRows[] = {
    {"map", "*", map},
    {"select", "*", selected<false, true>},
    {"reject", "*", selected<false, false>},
    {"selectattr", "*", selected<true, true>},
    {"rejectattr", "*", selected<true, false>},
};

}  // namespace

std::span<const Builtin> selecting_filters() noexcept { return kRows; }

}  // namespace halfbyte::models::jinja
