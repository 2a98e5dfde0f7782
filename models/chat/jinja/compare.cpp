#include "models/chat/jinja/compare.h"

#include <cmath>
#include <cstring>

#include "models/chat/jinja/callable.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/heap.h"

namespace halfbyte::models::jinja {
namespace {

constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 16;  // of tuples

std::string_view list_name(const ListBox& list) noexcept {
  switch (list.kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
      return "tuple";
    case ListKind::kView:
      return list.name;
    case ListKind::kRange:
      return "range";
    case ListKind::kGenerator:
      return "generator";
  }
  return "list";
}

bool equal_lists(const ListBox& left, const ListBox& right, Heap& heap) {
  if (&left == &right) return true;
  if (left.kind != right.kind || left.kind == ListKind::kGenerator || left.items.size() != right.items.size())
    return false;
  for (std::size_t i = 0; i < left.items.size(); ++i) {
    if (!equal(left.items[i], right.items[i], heap)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& left, const Dict& right, Heap& heap) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.find(key);
    if (!other || !equal(value, *other, heap)) return false;
  }
  return true;
}

// Of numbers, whole ones exactly.
std::partial_ordering order_of_numbers(const Value& left, const Value& right) {
  const auto a = left.integer();
  const auto b = right.integer();
  if (a && b) return *a <=> *b;
  return *left.number() <=> *right.number();
}

bool less_lists(const ListBox& left, const ListBox& right, Heap& heap) {
  const std::size_t both = std::min(left.items.size(), right.items.size());
  for (std::size_t i = 0; i < both; ++i) {
    if (!equal(left.items[i], right.items[i], heap)) return less(left.items[i], right.items[i], heap);
  }
  return left.items.size() < right.items.size();
}

bool is_ordered(const ListBox* left, const ListBox* right) noexcept {
  return left && right && left->kind == right->kind &&
         (left->kind == ListKind::kList || left->kind == ListKind::kTuple);
}

const void* address_of(const Value& value) noexcept {
  if (const auto* space = value.space()) return space;
  if (const auto* callable = value.callable()) return callable;
  return value.loop();
}

}  // namespace

std::string_view type_name(const Value& value) noexcept {
  if (const ListBox* list = value.list()) return list_name(*list);
  constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool",      "int",      "float",      "str",
                                         "list",      "dict",     "Namespace", "function", "LoopContext"};
  return kNames[value.store().index()];
}

bool is_true(const Value& value) noexcept {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = value.number()) return *number != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const ListBox* list = value.list()) return list->kind == ListKind::kGenerator || !list->items.empty();
  if (const DictBox* dict = value.dict()) return dict->entries.size() > 0;
  return true;
}

bool equal(const Value& left, const Value& right, Heap& heap) {
  heap.step();
  if (left.number() && right.number()) return order_of_numbers(left, right) == std::partial_ordering::equivalent;
  if (left.store().index() != right.store().index()) return false;
  if (left.is_undefined() || left.is_none()) return true;
  if (const Text* text = left.text()) {
    heap.step_over(text->size() / 4);
    return text->view() == right.text()->view();
  }
  if (const ListBox* list = left.list()) return equal_lists(*list, *right.list(), heap);
  if (const DictBox* dict = left.dict()) return equal_dicts(dict->entries, right.dict()->entries, heap);
  return address_of(left) == address_of(right);
}

bool less(const Value& left, const Value& right, Heap& heap) {
  heap.step();
  if (left.is_undefined()) fail(*left.get<Undefined>()->problem);
  if (right.is_undefined()) fail(*right.get<Undefined>()->problem);
  if (left.number() && right.number()) return order_of_numbers(left, right) == std::partial_ordering::less;
  if (left.text() && right.text()) {
    heap.step_over(std::min(left.text()->size(), right.text()->size()) / 4);
    return left.text()->view() < right.text()->view();  // UTF-8 sorts as code points do
  }
  if (is_ordered(left.list(), right.list())) return less_lists(*left.list(), *right.list(), heap);
  fail("a " + std::string(type_name(left)) + " and a " + std::string(type_name(right)) + " have no order");
}

std::string key_of(std::string_view text) { return "s" + std::string(text); }

std::string key_of(const Value& value) {
  if (const Text* text = value.text()) return key_of(text->view());
  if (value.is_none()) return "n";
  if (value.is_undefined()) return "u";
  if (const auto whole = value.integer()) return "i" + std::to_string(*whole);
  if (const auto number = value.number()) {
    constexpr double kExact = 9007199254740992.0;
    if (std::floor(*number) == *number && std::abs(*number) <= kExact)
      return "i" + std::to_string(static_cast<std::int64_t>(*number));
    char bytes[sizeof(double)];
    std::memcpy(bytes, &*number, sizeof(double));
    return "f" + std::string(bytes, sizeof(double));
  }
  const ListBox* list = value.list();
  if (!list || list->kind != ListKind::kTuple) fail("a " + std::string(type_name(value)) + " is no key of a dict");
  std::string key = "t";
  for (const Value& item : list->items) {
    const std::string one = key_of(item);
    key += std::to_string(one.size()) + ":" + one;
    if (key.size() > kMaxKeyBytes) refuse("a tuple is a longer key than any");  // tuples that hold one twice, and so on
  }
  return key;
}

}  // namespace halfbyte::models::jinja
