#include "models/chat/jinja/builtins.h"

#include <algorithm>
#include <initializer_list>

#include "models/chat/jinja/failure.h"

namespace halfbyte::models::jinja {
namespace {

using Rows = std::span<const Builtin>;

const Builtin* find_in(std::initializer_list<Rows> tables, std::string_view name) noexcept {
  for (const Rows rows : tables) {
    const auto row = std::ranges::find(rows, name, &Builtin::name);
    if (row != rows.end()) return &*row;
  }
  return nullptr;
}

// Source: jinja2/sandbox.py, _mutable_spec.
constexpr std::string_view kDeniedOfLists[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDeniedOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

const Builtin* find_filter(std::string_view name) noexcept {
  return find_in({text_filters(), value_filters(), list_filters(), selecting_filters()}, name);
}

const Builtin* find_test(std::string_view name) noexcept { return find_in({tests()}, name); }

const Builtin* find_function(std::string_view name) noexcept { return find_in({functions()}, name); }

const Builtin* find_method(const Value& self, std::string_view name) noexcept {
  if (self.text()) return find_in({text_methods(), text_questions()}, name);
  if (self.dict()) return find_in({dict_methods()}, name);
  if (self.loop()) return find_in({loop_methods()}, name);
  const ListBox* list = self.list();
  const bool has_methods = list && (list->kind == ListKind::kList || list->kind == ListKind::kTuple);
  return has_methods ? find_in({list_methods()}, name) : nullptr;
}

bool is_denied_method(const Value& self, std::string_view name) noexcept {
  if (self.dict()) return std::ranges::find(kDeniedOfDicts, name) != std::end(kDeniedOfDicts);
  const ListBox* list = self.list();
  return list && list->kind == ListKind::kList && std::ranges::find(kDeniedOfLists, name) != std::end(kDeniedOfLists);
}

// `self` of a function or method: the callable, or what the method belongs to.
Value run_builtin(Interpreter& run, const Builtin& builtin, const Value& self, const Call& call) {
  const CallableBox* callable = self.callable();
  const bool is_method = callable && callable->builtin == &builtin && !callable->self.is_none();
  return builtin.run(run, is_method ? callable->self : self, Arguments(builtin.name, builtin.parameters, call));
}

}  // namespace halfbyte::models::jinja
