// Attributes, items, slices and membership. Source: jinja2/sandbox.py, and Python's own rules.
#include <algorithm>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/find.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/print.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {
namespace {

using Size = std::int64_t;

bool is_indexed(const ListBox& list) noexcept {
  return list.kind != ListKind::kGenerator && list.kind != ListKind::kView;
}

// Bytes of the characters [begin, end) of a text.
Text characters_of(const StringBox& box, std::size_t begin, std::size_t end) {
  if (box.characters == box.text.size()) return box.text.part(begin, end);
  const std::size_t from = byte_of(box.text.view(), begin);
  return box.text.part(from, from + byte_of(box.text.view().substr(from), end - begin));
}

const StringBox* string_box(const Value& value) noexcept {
  const auto* box = value.get<std::shared_ptr<const StringBox>>();
  return box ? box->get() : nullptr;
}

// Where an index points, counted from the end when negative. Nothing: beyond the ends.
std::optional<std::size_t> place_of(Size index, std::size_t size) noexcept {
  const auto length = static_cast<Size>(size);
  if (index < -length || index >= length) return std::nullopt;
  return static_cast<std::size_t>(index < 0 ? index + length : index);
}

std::optional<Value> element(Interpreter& run, const Value& object, Size index) {
  if (const StringBox* box = string_box(object)) {
    const auto place = place_of(index, box->characters);
    if (!place) return std::nullopt;
    if (box->characters != box->text.size()) run.heap().step_over(box->text.size());
    return run.heap().text(characters_of(*box, *place, *place + 1));
  }
  const ListBox* list = object.list();
  const auto place = list && is_indexed(*list) ? place_of(index, list->items.size()) : std::nullopt;
  return place ? std::optional(list->items[*place]) : std::nullopt;
}

using LoopAttribute = Value (*)(Interpreter&, const LoopBox&);
struct LoopRow {
  std::string_view name;
  LoopAttribute get;
};

Value whole(std::size_t number) { return Value(static_cast<Size>(number)); }
std::size_t left_of(const LoopBox& loop) {
  return loop.items->items.size() - std::min(loop.index, loop.items->items.size());
}

constexpr LoopRow kLoopRows[] = {
    {"index", [](Interpreter&, const LoopBox& loop) { return whole(loop.index + 1); }},
    {"index0", [](Interpreter&, const LoopBox& loop) { return whole(loop.index); }},
    {"revindex", [](Interpreter&, const LoopBox& loop) { return whole(left_of(loop)); }},
    {"revindex0", [](Interpreter&, const LoopBox& loop) { return Value(static_cast<Size>(left_of(loop)) - 1); }},
    {"first", [](Interpreter&, const LoopBox& loop) { return Value(loop.index == 0); }},
    {"last", [](Interpreter&, const LoopBox& loop) { return Value(left_of(loop) <= 1); }},
    {"length", [](Interpreter&, const LoopBox& loop) { return whole(loop.items->items.size()); }},
    {"depth", [](Interpreter&, const LoopBox&) { return whole(1); }},
    {"depth0", [](Interpreter&, const LoopBox&) { return whole(0); }},
    {"previtem",
     [](Interpreter&, const LoopBox& loop) {
       const std::size_t before = std::min(loop.index, loop.items->items.size());
       return before > 0 ? loop.items->items[before - 1] : Value::undefined("there is no previous item");
     }},
    {"nextitem",
     [](Interpreter&, const LoopBox& loop) {
       return left_of(loop) > 1 ? loop.items->items[loop.index + 1] : Value::undefined("there is no next item");
     }},
};

std::optional<Value> own_attribute(Interpreter& run, const Value& object, const std::string& name) {
  if (const LoopBox* loop = object.loop()) {
    const auto* row = std::ranges::find(kLoopRows, name, &LoopRow::name);
    if (row != std::end(kLoopRows)) return row->get(run, *loop);
  }
  if (NamespaceBox* space = object.space()) {
    run.heap().step(space->attributes.size());
    const Value* value = space->find(name);
    return value ? std::optional(*value) : std::nullopt;
  }
  if (name.starts_with('_') || is_denied_method(object, name))
    return Value::undefined("access to attribute " + in_quotes(name) + " of a " + std::string(type_name(object)) +
                            " is unsafe");
  if (const Builtin* method = find_method(object, name))
    return run.heap().callable({.builtin = method, .self = object});
  return std::nullopt;
}

const Value* entry_of(const Value& object, const Value& key) {
  const DictBox* dict = object.dict();
  const bool is_key = dict && !key.dict() && (!key.list() || key.list()->kind == ListKind::kTuple);
  return is_key ? dict->entries.find(key) : nullptr;
}

Value missing(const Value& object, const std::string& name) {
  if (object.is_none()) return Value::undefined("\"None\" has no attribute " + in_quotes(name));
  return Value::undefined("a " + std::string(type_name(object)) + " has no attribute " + in_quotes(name));
}

void check_defined(const Value& object) {
  if (const auto* undefined = object.get<Undefined>()) fail(*undefined->problem);
}

// The places of a slice, in order.
std::vector<std::size_t> places_of(Interpreter& run, std::size_t size, const Value& begin, const Value& end,
                                   const Value& step) {
  const auto number = [](const Value& value, Size fallback) {
    if (!value.is_none() && !value.integer()) fail("a slice's end is a " + std::string(type_name(value)));
    return value.is_none() ? fallback : *value.integer();
  };
  const auto length = static_cast<Size>(size);
  const Size by = number(step, 1);
  if (by == 0) fail("a slice's step is 0");
  const Size low = by > 0 ? 0 : -1;
  const Size high = by > 0 ? length : length - 1;
  const auto within = [&](Size index) {
    return std::clamp(index < 0 ? std::max(index, -length - 1) + length : index, low, high);
  };
  const Size from = begin.is_none() ? (by > 0 ? low : high) : within(number(begin, 0));
  const Size to = end.is_none() ? (by > 0 ? high : low) : within(number(end, 0));
  std::vector<std::size_t> places;
  run.heap().step(size / 8 + 1);
  for (Size at = from; by > 0 ? at < to : at > to;) {
    places.push_back(static_cast<std::size_t>(at));
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  return places;
}

Value slice_of_text(Interpreter& run, const StringBox& box, const Value& begin, const Value& end, const Value& step) {
  run.heap().step_over(box.text.size());
  const auto places = places_of(run, box.characters, begin, end, step);
  if (places.empty()) return run.heap().text(Text());
  const bool is_run = places.size() == 1 || places[1] == places[0] + 1;
  if (is_run) return run.heap().text(characters_of(box, places.front(), places.back() + 1));
  std::vector<std::size_t> starts;  // of each character
  for (std::size_t at = 0; at < box.text.size(); at += character_size(box.text.view(), at)) starts.push_back(at);
  Text out;
  for (const std::size_t place : places)
    out.append(box.text, starts[place], starts[place] + character_size(box.text.view(), starts[place]));
  return run.heap().text(std::move(out));
}

}  // namespace

Value attribute_of(Interpreter& run, const Value& object, const std::string& name) {
  check_defined(object);
  if (auto own = own_attribute(run, object, name)) return *std::move(own);
  if (const DictBox* dict = object.dict()) {
    run.heap().step_over(name.size());
    if (const Value* value = dict->entries.find(std::string_view(name))) return *value;
  }
  return missing(object, name);
}

Value item_of(Interpreter& run, const Value& object, const Value& index) {
  check_defined(object);
  if (index.text()) run.heap().step_over(index.text()->size());
  if (const Value* value = entry_of(object, index)) return *value;
  if (const auto number = index.integer()) {
    if (auto found = element(run, object, *number)) return *std::move(found);
  }
  if (const Text* name = index.text()) {
    if (auto own = own_attribute(run, object, name->bytes())) return *std::move(own);
  }
  return missing(object, printed(index, run.heap()).bytes());
}

Value slice_of(Interpreter& run, const Value& object, const Value& begin, const Value& end, const Value& step) {
  check_defined(object);
  if (const StringBox* box = string_box(object)) return slice_of_text(run, *box, begin, end, step);
  const ListBox* list = object.list();
  if (!list || !is_indexed(*list)) return missing(object, "a slice");
  std::vector<Value> items;
  for (const std::size_t place : places_of(run, list->items.size(), begin, end, step))
    items.push_back(list->items[place]);
  return run.heap().list(std::move(items), list->kind);
}

std::vector<Value> items_of(Interpreter& run, const Value& value) {
  if (value.is_undefined()) return {};
  std::vector<Value> items;
  if (const ListBox* list = value.list()) {
    run.heap().step(list->items.size() / 4 + 1);
    const bool is_spent = list->kind == ListKind::kGenerator && std::exchange(list->is_spent, true);
    return is_spent ? items : list->items;
  }
  if (const DictBox* dict = value.dict()) {
    run.heap().step(dict->entries.size());
    for (const Dict::Entry& entry : dict->entries.entries()) items.push_back(entry.key);
    return items;
  }
  const Text* text = value.text();
  if (!text) fail("a " + std::string(type_name(value)) + " is not iterable");
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t size = character_size(text->view(), at);
    items.push_back(run.heap().text(text->part(at, at + size)));
    at += size;
  }
  return items;
}

bool contains(Interpreter& run, const Value& whole_value, const Value& part) {
  if (const Text* text = whole_value.text()) {
    check_defined(part);
    if (!part.text()) fail("a " + std::string(type_name(part)) + " is looked for in a string");
    run.heap().step_over(text->size());
    return find_text(text->view(), part.text()->view(), 0) != std::string_view::npos;
  }
  if (whole_value.dict()) {
    if (part.list() && part.list()->kind != ListKind::kTuple) fail("a list is no key of a dict");
    return entry_of(whole_value, part) != nullptr;
  }
  const std::vector<Value> items = items_of(run, whole_value);
  return std::ranges::any_of(items, [&](const Value& item) { return equal(item, part, run.heap()); });
}

}  // namespace halfbyte::models::jinja
