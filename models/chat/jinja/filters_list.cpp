// Filters of lists and dicts. Source: jinja2/filters.py.
#include <algorithm>
#include <unordered_set>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/operators.h"
#include "models/chat/jinja/print.h"

namespace halfbyte::models::jinja {
namespace {

Value first(Interpreter& run, const Value& self, const Arguments&) {
  const std::vector<Value> items = items_of(run, self);
  return items.empty() ? Value::undefined("there is no first item") : items.front();
}

Value last(Interpreter& run, const Value& self, const Arguments&) {
  const ListBox* list = self.list();
  if (list && list->kind == ListKind::kGenerator) fail("a generator has no last item");
  const std::vector<Value> items = items_of(run, self);
  return items.empty() ? Value::undefined("there is no last item") : items.back();
}

Value to_list(Interpreter& run, const Value& self, const Arguments&) { return run.heap().list(items_of(run, self)); }

Value reverse(Interpreter& run, const Value& self, const Arguments&) {
  if (self.text()) return slice_of(run, self, Value(), Value(), Value(std::int64_t{-1}));
  std::vector<Value> items = items_of(run, self);
  std::ranges::reverse(items);
  return run.heap().list(std::move(items), ListKind::kGenerator);
}

// What jinja2 compares instead of a value: a string without its case.
Value folded(Interpreter& run, const Value& value, bool has_case) {
  const Text* text = value.text();
  return text && !has_case ? run.heap().text(lower(*text)) : value;
}

// Items in the order of their keys; equal ones stay as they are.
std::vector<Value> sorted(Interpreter& run, std::vector<Value> keys, const std::vector<Value>& items,
                          bool is_reversed) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return is_reversed ? less(keys[b], keys[a], run.heap()) : less(keys[a], keys[b], run.heap());
  });
  std::vector<Value> out;
  for (const std::size_t place : order) out.push_back(items[place]);
  return out;
}

// "a,b.c": each is a part of the key.
Value sort_key(Interpreter& run, const Value& item, const Value* attribute, bool has_case) {
  if (!attribute || attribute->is_none()) return folded(run, item, has_case);
  if (!attribute->text()) return folded(run, item_by_path(run, item, *attribute), has_case);
  std::vector<Value> parts;
  std::string_view names = attribute->text()->view();
  while (true) {
    const std::size_t end = std::min(names.find(','), names.size());
    const Value name = run.heap().text(std::string(names.substr(0, end)));
    parts.push_back(folded(run, item_by_path(run, item, name), has_case));
    if (end == names.size()) break;
    names.remove_prefix(end + 1);
  }
  return run.heap().list(std::move(parts));
}

Value sort(Interpreter& run, const Value& self, const Arguments& arguments) {
  const std::vector<Value> items = items_of(run, self);
  std::vector<Value> keys;
  for (const Value& item : items)
    keys.push_back(sort_key(run, item, arguments.has(2) ? &arguments.at(2) : nullptr, arguments.flag_or(1, false)));
  return run.heap().list(sorted(run, std::move(keys), items, arguments.flag_or(0, false)));
}

Value dictsort(Interpreter& run, const Value& self, const Arguments& arguments) {
  const DictBox* dict = self.dict();
  if (!dict) fail("dictsort of a " + std::string(type_name(self)));
  const Text* by = arguments.text_or_null(1);
  if (by && by->view() != "key" && by->view() != "value") fail("dictsort goes by \"key\" or \"value\"");
  const bool by_value = by && by->view() == "value";
  std::vector<Value> keys;
  std::vector<Value> items;
  for (const auto& [key, value] : dict->entries.entries()) {
    keys.push_back(folded(run, by_value ? value : key, arguments.flag_or(0, false)));
    items.push_back(run.heap().list({key, value}, ListKind::kTuple));
  }
  return run.heap().list(sorted(run, std::move(keys), items, arguments.flag_or(2, false)));
}

Value items(Interpreter& run, const Value& self, const Arguments&) {
  if (self.is_undefined()) return run.heap().list({}, ListKind::kGenerator);
  const DictBox* dict = self.dict();
  if (!dict) fail("items of a " + std::string(type_name(self)));
  std::vector<Value> out;
  for (const auto& [key, value] : dict->entries.entries())
    out.push_back(run.heap().list({key, value}, ListKind::kTuple));
  return run.heap().list(std::move(out), ListKind::kGenerator);
}

Value unique(Interpreter& run, const Value& self, const Arguments& arguments) {
  std::unordered_set<std::string> seen;
  std::vector<Value> out;
  for (Value& item : items_of(run, self)) {
    const Value by = arguments.has(1) && !arguments.at(1).is_none() ? item_by_path(run, item, arguments.at(1)) : item;
    run.heap().step();
    if (seen.insert(key_of(folded(run, by, arguments.flag_or(0, false)))).second) out.push_back(std::move(item));
  }
  return run.heap().list(std::move(out), ListKind::kGenerator);
}

Value sum(Interpreter& run, const Value& self, const Arguments& arguments) {
  Value total = arguments.value_or(1, Value(std::int64_t{0}));
  for (const Value& item : items_of(run, self)) {
    const bool has_path = arguments.has(0) && !arguments.at(0).is_none();
    if (total.text()) fail("sum of strings");
    total = find_binary("+")(run, total, has_path ? item_by_path(run, item, arguments.at(0)) : item);
  }
  return total;
}

Value outermost(Interpreter& run, const Value& self, const Arguments& arguments, bool is_largest) {
  std::optional<Value> best;
  Value best_key;
  for (Value& item : items_of(run, self)) {
    const Value by = arguments.has(1) && !arguments.at(1).is_none() ? item_by_path(run, item, arguments.at(1)) : item;
    Value key = folded(run, by, arguments.flag_or(0, false));
    const bool is_better = !best || (is_largest ? less(best_key, key, run.heap()) : less(key, best_key, run.heap()));
    if (!is_better) continue;
    best = std::move(item);
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("there is no item in an empty list");
}

Value groupby(Interpreter& run, const Value& self, const Arguments& arguments) {
  const std::vector<Value> all = items_of(run, self);
  std::vector<Value> keys;
  std::vector<Value> folded_keys;
  for (const Value& item : all) {
    Value key = item_by_path(run, item, arguments.at(0));
    if (key.is_undefined() && arguments.has(1)) key = arguments.at(1);
    folded_keys.push_back(folded(run, key, arguments.flag_or(2, false)));
    keys.push_back(run.heap().list({key, item}, ListKind::kTuple));
  }
  std::vector<Value> groups;
  std::vector<Value> group;
  Value name;
  const auto end_group = [&] {
    if (!group.empty())
      groups.push_back(run.heap().list({name, run.heap().list(std::exchange(group, {}))}, ListKind::kTuple));
  };
  for (const Value& pair : sorted(run, folded_keys, keys, false)) {
    const Value& key = pair.list()->items[0];
    const bool has_case = arguments.flag_or(2, false);
    if (group.empty() || !equal(folded(run, key, has_case), folded(run, name, has_case), run.heap())) {
      end_group();
      name = key;
    }
    group.push_back(pair.list()->items[1]);
  }
  end_group();
  return run.heap().list(std::move(groups));
}

constexpr Builtin kRows[] = {
    {"first", "", first},
    {"last", "", last},
    {"list", "", to_list},
    {"reverse", "", reverse},
    {"sort", "| reverse case_sensitive attribute", sort},
    {"dictsort", "| case_sensitive by reverse", dictsort},
    {"items", "", items},
    {"unique", "| case_sensitive attribute", unique},
    {"sum", "| attribute start", sum},
    {"min", "| case_sensitive attribute",
     [](Interpreter& run, const Value& self, const Arguments& given) { return outermost(run, self, given, false); }},
    {"max", "| case_sensitive attribute",
     [](Interpreter& run, const Value& self, const Arguments& given) { return outermost(run, self, given, true); }},
    {"groupby", "attribute | default case_sensitive", groupby},
};

}  // namespace

Value item_by_path(Interpreter& run, const Value& item, const Value& path) {
  const Text* names = path.text();
  if (!names) return item_of(run, item, path);
  Value out = item;
  std::string_view rest = names->view();
  while (true) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const std::string name(rest.substr(0, end));
    const bool is_number =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    out = item_of(run, out, is_number ? Value(std::int64_t{std::stoi(name)}) : run.heap().text(name));
    if (end == rest.size()) return out;
    rest.remove_prefix(end + 1);
  }
}

std::span<const Builtin> list_filters() noexcept { return kRows; }

}  // namespace halfbyte::models::jinja
