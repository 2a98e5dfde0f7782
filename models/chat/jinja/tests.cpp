// What stands behind `is`. Source: jinja2/tests.py.
#include <cmath>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/operators.h"
#include "models/chat/jinja/print.h"

namespace halfbyte::models::jinja {
namespace {

bool is_iterable(const Value& value) { return value.is_undefined() || value.text() || value.list() || value.dict(); }

// What has a length and items by their number: jinja2 asks no more.
bool is_sequence(const Value& value) {
  const ListBox* list = value.list();
  const bool has_items = list && list->kind != ListKind::kGenerator && list->kind != ListKind::kView;
  return value.is_undefined() || value.text() || value.dict() || has_items;
}

bool is_multiple(Interpreter& run, const Value& self, const Value& of) {
  const Value rest = find_binary("%")(run, self, of);
  return rest.number() == 0.0;
}

bool has_case(const Value& self, Heap& heap, bool (*is_it)(char32_t), bool (*is_other)(char32_t)) {
  const Text text = printed(self, heap);
  bool has_some = false;
  for (std::size_t at = 0; at < text.size(); at += character_size(text.view(), at)) {
    const char32_t code = character_at(text.view(), at).code;
    if (is_other(code)) return false;
    has_some = has_some || is_it(code);
  }
  return has_some;
}

bool upper_of(char32_t code) { return is_upper(code); }
bool lower_of(char32_t code) { return is_lower(code); }

#define HALFBYTE_TEST(condition)                                                                                       \
  [](Interpreter& run [[maybe_unused]], const Value& self [[maybe_unused]], const Arguments& given [[maybe_unused]]) { \
    return Value(static_cast<bool>(condition));                                                                        \
  }
#define HALFBYTE_COMPARES(sign) HALFBYTE_TEST(find_comparison(sign)(run, self, given.at(0)))

constexpr Builtin kRows[] = {
    {"defined", "", HALFBYTE_TEST(!self.is_undefined())},
    {"undefined", "", HALFBYTE_TEST(self.is_undefined())},
    {"none", "", HALFBYTE_TEST(self.is_none())},
    {"string", "", HALFBYTE_TEST(self.text())},
    {"number", "", HALFBYTE_TEST(self.number())},
    {"integer", "", HALFBYTE_TEST(self.get<std::int64_t>())},
    {"float", "", HALFBYTE_TEST(self.get<double>())},
    {"boolean", "", HALFBYTE_TEST(self.get<bool>())},
    {"true", "", HALFBYTE_TEST(self.get<bool>() && *self.get<bool>())},
    {"false", "", HALFBYTE_TEST(self.get<bool>() && !*self.get<bool>())},
    {"mapping", "", HALFBYTE_TEST(self.dict())},
    {"iterable", "", HALFBYTE_TEST(is_iterable(self))},
    {"sequence", "", HALFBYTE_TEST(is_sequence(self))},
    {"callable", "", HALFBYTE_TEST(self.callable())},
    {"odd", "", HALFBYTE_TEST(!is_multiple(run, self, Value(std::int64_t{2})))},
    {"even", "", HALFBYTE_TEST(is_multiple(run, self, Value(std::int64_t{2})))},
    {"divisibleby", "num", HALFBYTE_TEST(is_multiple(run, self, given.at(0)))},
    {"lower", "", HALFBYTE_TEST(has_case(self, run.heap(), lower_of, upper_of))},
    {"upper", "", HALFBYTE_TEST(has_case(self, run.heap(), upper_of, lower_of))},
    {"escaped", "", HALFBYTE_TEST(false)},
    {"filter", "", HALFBYTE_TEST(self.text() && find_filter(self.text()->view()))},
    {"test", "", HALFBYTE_TEST(self.text() && find_test(self.text()->view()))},
    {"in", "seq", HALFBYTE_COMPARES("in")},
    {"sameas", "other",
     HALFBYTE_TEST(self.store().index() == given.at(0).store().index() && equal(self, given.at(0), run.heap()))},
    {"equalto", "other", HALFBYTE_COMPARES("==")},
    {"eq", "other", HALFBYTE_COMPARES("==")},
    {"==", "other", HALFBYTE_COMPARES("==")},
    {"ne", "other", HALFBYTE_COMPARES("!=")},
    {"!=", "other", HALFBYTE_COMPARES("!=")},
    {"lt", "other", HALFBYTE_COMPARES("<")},
    {"lessthan", "other", HALFBYTE_COMPARES("<")},
    {"<", "other", HALFBYTE_COMPARES("<")},
    {"le", "other", HALFBYTE_COMPARES("<=")},
    {"<=", "other", HALFBYTE_COMPARES("<=")},
    {"gt", "other", HALFBYTE_COMPARES(">")},
    {"greaterthan", "other", HALFBYTE_COMPARES(">")},
    {">", "other", HALFBYTE_COMPARES(">")},
    {"ge", "other", HALFBYTE_COMPARES(">=")},
    {">=", "other", HALFBYTE_COMPARES(">=")},
};

#undef HALFBYTE_COMPARES
#undef HALFBYTE_TEST

}  // namespace

std::span<const Builtin> tests() noexcept { return kRows; }

}  // namespace halfbyte::models::jinja
