// Methods of strings that give strings or lists. Source: Python's str.
#include <algorithm>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/format.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/text_operations.h"

namespace halfbyte::models::jinja {
namespace {

template <Side kSide>
Value strip(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text* characters = arguments.text_or_null(0);
  run.heap().step_over(self.text()->size() * (characters ? characters->size() + 1 : 1));
  return run.heap().text(stripped(*self.text(), characters ? &characters->bytes() : nullptr, kSide));
}

Value list_of(Interpreter& run, std::vector<Text> parts) {
  std::vector<Value> items;
  for (Text& part : parts) items.push_back(run.heap().text(std::move(part)));
  return run.heap().list(std::move(items));
}

template <bool kFromRight>
Value split(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text& text = *self.text();
  const Text* separator = arguments.text_or_null(0);
  const std::int64_t most = arguments.integer_or(1, -1);
  if (separator && separator->empty()) fail("a text is split at nothing");
  if (!separator)
    return list_of(run,
                   kFromRight ? split_at_last_blanks(run.heap(), text, most) : split_at_blanks(run.heap(), text, most));
  return list_of(run, kFromRight ? split_at_last(run.heap(), text, *separator, most)
                                 : split_at(run.heap(), text, *separator, most));
}

// (before, separator, after); without the separator the text is the first, or from the right the last.
template <bool kFromRight>
Value partition(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text& separator = arguments.text(0);
  if (separator.empty()) fail("a text is split at nothing");
  std::vector<Text> parts = kFromRight ? split_at_last(run.heap(), *self.text(), separator, 1)
                                       : split_at(run.heap(), *self.text(), separator, 1);
  if (parts.size() == 2) {
    parts.insert(parts.begin() + 1, separator);
  } else {
    parts.insert(kFromRight ? parts.begin() : parts.end(), 2, Text());
  }
  const Value list = list_of(run, std::move(parts));
  return run.heap().list(list.list()->items, ListKind::kTuple);
}

Value replace(Interpreter& run, const Value& self, const Arguments& arguments) {
  return run.heap().text(
      replaced(run.heap(), *self.text(), arguments.text(0), arguments.text(1), arguments.integer_or(2, -1)));
}

template <Text (*kChange)(const Text&)>
Value changed(Interpreter& run, const Value& self, const Arguments&) {
  run.heap().step_over(self.text()->size() * 4);
  return run.heap().text(kChange(*self.text()));
}

Value join(Interpreter& run, const Value& self, const Arguments& arguments) {
  Text out;
  bool is_first = true;
  for (const Value& item : items_of(run, arguments.at(0))) {
    if (!item.text()) fail("join wants strings, not a " + std::string(type_name(item)));
    run.heap().step_over(item.text()->size() + self.text()->size());
    run.heap().expect(out.size() + item.text()->size() + self.text()->size());
    if (!std::exchange(is_first, false)) out.append(*self.text());
    out.append(*item.text());
  }
  return run.heap().text(std::move(out));
}

template <bool kAtEnd>
Value without(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text& text = *self.text();
  const Text& what = arguments.text(0);
  const bool stands = kAtEnd ? text.view().ends_with(what.view()) : text.view().starts_with(what.view());
  const std::size_t cut = stands ? what.size() : 0;
  return run.heap().text(kAtEnd ? text.part(0, text.size() - cut) : text.part(cut, text.size()));
}

// With so many characters at least, the rest filled up.
Value filled(Interpreter& run, const Value& self, const Arguments& arguments, bool is_left) {
  const Text& text = *self.text();
  const Text* with = arguments.text_or_null(1);
  const std::size_t count = character_count(text.view());
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(0, arguments.integer_or(0, 0)));
  const std::size_t missing = width > count ? width - count : 0;
  if (with && character_count(with->view()) != 1) fail("a text is filled up with one character");
  run.heap().expect(missing);
  run.heap().step_over(missing);
  Text blanks;
  for (std::size_t i = 0; i < missing; ++i) blanks.append(with ? with->view() : " ", Origin::kTemplate);
  Text out = is_left ? text : blanks;
  out.append(is_left ? blanks : text);
  return run.heap().text(std::move(out));
}

Value lines(Interpreter& run, const Value& self, const Arguments& arguments) {
  return list_of(run, split_lines(run.heap(), *self.text(), arguments.flag_or(0, false)));
}

constexpr Builtin kRows[] = {
    {"strip", "| chars", strip<Side::kBoth>},
    {"lstrip", "| chars", strip<Side::kLeft>},
    {"rstrip", "| chars", strip<Side::kRight>},
    {"split", "| sep maxsplit", split<false>},
    {"rsplit", "| sep maxsplit", split<true>},
    {"splitlines", "| keepends", lines},
    {"partition", "sep", partition<false>},
    {"rpartition", "sep", partition<true>},
    {"replace", "old new | count", replace},
    {"upper", "", changed<upper>},
    {"lower", "", changed<lower>},
    {"casefold", "", changed<lower>},
    {"title", "", changed<titled>},
    {"capitalize", "", changed<capitalized>},
    {"join", "iterable", join},
    {"removeprefix", "prefix", without<false>},
    {"removesuffix", "suffix", without<true>},
    {"ljust", "width | fillchar",
     [](Interpreter& run, const Value& self, const Arguments& given) { return filled(run, self, given, true); }},
    {"rjust", "width | fillchar",
     [](Interpreter& run, const Value& self, const Arguments& given) { return filled(run, self, given, false); }},
    {"format", "*",
     [](Interpreter& run, const Value& self, const Arguments& given) {
       return run.heap().text(formatted_by_braces(run, *self.text(), given.call()));
     }},
};

}  // namespace

std::span<const Builtin> text_methods() noexcept { return kRows; }

}  // namespace halfbyte::models::jinja
