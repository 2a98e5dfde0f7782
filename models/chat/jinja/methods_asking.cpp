// Methods of strings that answer questions, and those of dicts, lists and loops. Source: Python's, and
// jinja2/runtime.py.
#include <algorithm>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/find.h"
#include "models/chat/jinja/interpreter.h"

namespace halfbyte::models::jinja {
namespace {

std::string_view part_of(const Value& self, const Arguments& arguments, std::size_t first) {
  const std::string_view text = self.text()->view();
  const auto size = static_cast<std::int64_t>(character_count(text));
  const auto place = [&](std::int64_t index) {
    return std::clamp<std::int64_t>(index < 0 ? std::max(index, -size) + size : index, 0, size);
  };
  const std::int64_t begin = place(arguments.integer_or(first, 0));
  const std::int64_t end = std::max(begin, place(arguments.integer_or(first + 1, size)));
  const std::size_t from = byte_of(text, static_cast<std::size_t>(begin));
  return text.substr(from, byte_of(text.substr(from), static_cast<std::size_t>(end - begin)));
}

template <bool kAtEnd>
Value has_end(Interpreter& run, const Value& self, const Arguments& arguments) {
  run.heap().step_over(self.text()->size());
  const std::string_view text = part_of(self, arguments, 1);
  const auto stands = [&](const Value& what) {
    if (!what.text()) fail("a text's end is compared with a " + std::string(type_name(what)));
    return kAtEnd ? text.ends_with(what.text()->view()) : text.starts_with(what.text()->view());
  };
  const ListBox* several = arguments.at(0).list();
  if (!several || several->kind != ListKind::kTuple) return Value(stands(arguments.at(0)));
  run.heap().step(several->items.size());
  return Value(std::ranges::any_of(several->items, stands));
}

// The number of the character where it stands; -1: nowhere.
std::int64_t found(Interpreter& run, const Value& self, const Arguments& arguments, bool from_right) {
  run.heap().step_over(self.text()->size() * 2);
  const std::string_view whole = self.text()->view();
  const std::string_view text = part_of(self, arguments, 1);
  const std::string_view what = arguments.text(0).view();
  std::size_t at = std::string_view::npos;
  if (!from_right) at = find_text(text, what, 0);
  for (std::size_t next = 0; from_right && next <= text.size();) {
    const std::size_t one = find_text(text, what, next);
    if (one == std::string_view::npos) break;
    at = one;
    next = one + 1;
    run.heap().step_over(what.size());
  }
  if (at == std::string_view::npos) return -1;
  const auto begin = static_cast<std::size_t>(text.data() - whole.data());
  return static_cast<std::int64_t>(character_count(whole.substr(0, begin + at)));
}

template <bool kFromRight, bool kMustBe>
Value find(Interpreter& run, const Value& self, const Arguments& arguments) {
  const std::int64_t at = found(run, self, arguments, kFromRight);
  if (kMustBe && at < 0) fail("a text is not found in another");
  return Value(at);
}

Value count(Interpreter& run, const Value& self, const Arguments& arguments) {
  run.heap().step_over(self.text()->size());
  const std::string_view text = part_of(self, arguments, 1);
  const std::string_view what = arguments.text(0).view();
  if (what.empty()) return Value(static_cast<std::int64_t>(character_count(text)) + 1);
  std::int64_t times = 0;
  for (std::size_t at = find_text(text, what, 0); at != std::string_view::npos;
       at = find_text(text, what, at + what.size()))
    ++times;
  return Value(times);
}

template <bool (*kIsIt)(char32_t) noexcept>
Value all_are(Interpreter& run, const Value& self, const Arguments&) {
  const std::string_view text = self.text()->view();
  run.heap().step_over(text.size());
  bool are = !text.empty();
  for (std::size_t at = 0; are && at < text.size(); at += character_size(text, at))
    are = kIsIt(character_at(text, at).code);
  return Value(are);
}

bool is_letter_or_digit(char32_t code) noexcept { return is_letter(code) || is_digit(code); }

// Of characters that have a case, one at least, and none of the other.
template <bool (*kIsIt)(char32_t) noexcept, bool (*kIsOther)(char32_t) noexcept>
Value all_in_case(Interpreter& run, const Value& self, const Arguments&) {
  const std::string_view text = self.text()->view();
  run.heap().step_over(text.size());
  bool has_some = false;
  for (std::size_t at = 0; at < text.size(); at += character_size(text, at)) {
    const char32_t code = character_at(text, at).code;
    if (kIsOther(code)) return Value(false);
    has_some = has_some || kIsIt(code);
  }
  return Value(has_some);
}

constexpr Builtin kQuestions[] = {
    {"startswith", "prefix | start end", has_end<false>},
    {"endswith", "suffix | start end", has_end<true>},
    {"find", "sub | start end", find<false, false>},
    {"rfind", "sub | start end", find<true, false>},
    {"index", "sub | start end", find<false, true>},
    {"rindex", "sub | start end", find<true, true>},
    {"count", "sub | start end", count},
    {"isspace", "", all_are<is_space>},
    {"isalpha", "", all_are<is_letter>},
    {"isdigit", "", all_are<is_digit>},
    {"isdecimal", "", all_are<is_digit>},
    {"isnumeric", "", all_are<is_digit>},
    {"isalnum", "", all_are<is_letter_or_digit>},
    {"isupper", "", all_in_case<is_upper, is_lower>},
    {"islower", "", all_in_case<is_lower, is_upper>},
};

Value get(Interpreter& run, const Value& self, const Arguments& arguments) {
  run.heap().step();
  const Value* value = self.dict()->entries.find(arguments.at(0));
  return value ? *value : arguments.value_or(1, Value());
}

Value view_of(Interpreter& run, const Value& self, std::string_view name,
              Value (*one)(Interpreter&, const Dict::Entry&)) {
  std::vector<Value> items;
  for (const Dict::Entry& entry : self.dict()->entries.entries()) items.push_back(one(run, entry));
  return run.heap().list(std::move(items), ListKind::kView, name);
}

constexpr Builtin kOfDicts[] = {
    {"get", "key | default", get},
    {"items", "",
     [](Interpreter& run, const Value& self, const Arguments&) {
       return view_of(run, self, "dict_items", [](Interpreter& in, const Dict::Entry& entry) {
         return in.heap().list({entry.key, entry.value}, ListKind::kTuple);
       });
     }},
    {"keys", "",
     [](Interpreter& run, const Value& self, const Arguments&) {
       return view_of(run, self, "dict_keys", [](Interpreter&, const Dict::Entry& entry) { return entry.key; });
     }},
    {"values", "",
     [](Interpreter& run, const Value& self, const Arguments&) {
       return view_of(run, self, "dict_values", [](Interpreter&, const Dict::Entry& entry) { return entry.value; });
     }},
    {"copy", "", [](Interpreter&, const Value& self, const Arguments&) { return self; }},
};

Value count_in_list(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto is_it = [&](const Value& item) { return equal(item, arguments.at(0), run.heap()); };
  return Value(static_cast<std::int64_t>(std::ranges::count_if(self.list()->items, is_it)));
}

Value index_in_list(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto& items = self.list()->items;
  const auto at =
      std::ranges::find_if(items, [&](const Value& item) { return equal(item, arguments.at(0), run.heap()); });
  if (at == items.end()) fail("a value is not in a list");
  return Value(static_cast<std::int64_t>(at - items.begin()));
}

constexpr Builtin kOfLists[] = {
    {"count", "value", count_in_list},
    {"index", "value", index_in_list},
    {"copy", "", [](Interpreter&, const Value& self, const Arguments&) { return self; }},
};

Value cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  const auto& values = arguments.call().positional;
  if (values.empty()) fail("a cycle of nothing");
  return values[self.loop()->index % values.size()];
}

Value changed(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Value now = run.heap().list(arguments.call().positional, ListKind::kTuple);
  const auto& before = self.loop()->changed_from;
  const bool has_changed = !before || !equal(*before, now, run.heap());
  self.loop()->changed_from = now;
  return Value(has_changed);
}

constexpr Builtin kOfLoops[] = {{"cycle", "*", cycle}, {"changed", "*", changed}};

}  // namespace

std::span<const Builtin> text_questions() noexcept { return kQuestions; }
std::span<const Builtin> dict_methods() noexcept { return kOfDicts; }
std::span<const Builtin> list_methods() noexcept { return kOfLists; }
std::span<const Builtin> loop_methods() noexcept { return kOfLoops; }

}  // namespace halfbyte::models::jinja
