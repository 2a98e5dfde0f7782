// Filters of texts. Source: jinja2/filters.py.
#include <algorithm>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/format.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/print.h"
#include "models/chat/jinja/text_operations.h"

namespace halfbyte::models::jinja {
namespace {

Value changed(Interpreter& run, const Value& self, Text (*change)(const Text&)) {
  const Text text = printed(self, run.heap());
  run.heap().step_over(text.size() * 4);
  return run.heap().text(change(text));
}

// Words begin behind blanks and opening brackets alone.
Text titled_words(const Text& text) {
  constexpr std::string_view kSeparators = "-({[<";
  Text out;
  std::size_t begin = 0;
  const auto end_word = [&](std::size_t end) {
    const std::size_t first = begin < end ? begin + character_size(text.view(), begin) : begin;
    out.append(upper(text.part(begin, first)));
    out.append(lower(text.part(first, end)));
  };
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text.view(), at);
    const bool is_separator =
        is_space(character.code) ||
        (character.code < 0x80 && kSeparators.find(static_cast<char>(character.code)) != std::string_view::npos);
    if (is_separator) {
      end_word(at);
      out.append(text, at, at + character.size);
      begin = at + character.size;
    }
    at += character.size;
  }
  end_word(text.size());
  return out;
}

Value trim(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text* characters = arguments.text_or_null(0);
  run.heap().step_over(characters ? (characters->size() + 1) * printed(self, run.heap()).size() : 0);
  return run.heap().text(stripped(printed(self, run.heap()), characters ? &characters->bytes() : nullptr, Side::kBoth));
}

Value replace(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text old = printed(arguments.at(0), run.heap());
  const Text with = printed(arguments.at(1), run.heap());
  return run.heap().text(replaced(run.heap(), printed(self, run.heap()), old, with, arguments.integer_or(2, -1)));
}

Value indent(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text* words = arguments.has(0) ? arguments.at(0).text() : nullptr;
  const std::int64_t width = words ? 0 : arguments.integer_or(0, 4);
  run.heap().expect(static_cast<std::size_t>(std::max<std::int64_t>(0, width)));
  const Text blanks =
      words ? *words : Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' '));
  const bool has_first = arguments.flag_or(1, false);
  const bool has_blank = arguments.flag_or(2, false);
  const Text text = printed(self, run.heap());
  Text out;
  bool is_first = true;
  for (const Text& line : split_at(run.heap(), text, Text("\n"), -1)) {
    if (!is_first) out.append("\n", Origin::kTemplate);
    run.heap().step_over(blanks.size() + line.size());
    run.heap().expect(out.size() + blanks.size() + line.size());
    const bool is_moved = is_first ? has_first : has_blank || !line.empty();
    if (is_moved) out.append(blanks);
    out.append(line);
    is_first = false;
  }
  return run.heap().text(std::move(out));
}

Value escape(Interpreter& run, const Value& self, const Arguments&) {
  return self.is_markup() ? self : run.heap().text(escaped(printed(self, run.heap())), true);
}

Value to_json_filter(Interpreter& run, const Value& self, const Arguments& arguments) {
  JsonStyle style{.is_ascii = arguments.flag_or(0, false), .sorts_keys = arguments.flag_or(3, false)};
  if (arguments.has(1) && !arguments.at(1).is_none()) {
    const Text* words = arguments.at(1).text();
    const std::int64_t width = words ? 0 : std::clamp<std::int64_t>(arguments.integer_or(1, 0), 0, 1000);
    style.indent = words ? words->bytes() : std::string(static_cast<std::size_t>(width), ' ');
    style.between_items = ",";
  }
  if (arguments.has(2) && !arguments.at(2).is_none()) {
    const std::vector<Value> both = items_of(run, arguments.at(2));
    if (both.size() != 2 || !both[0].text() || !both[1].text()) fail("tojson wants two separators");
    style.between_items = both[0].text()->bytes();
    style.after_key = both[1].text()->bytes();
  }
  return run.heap().text(to_json(self, style, run.heap()));
}

Value join(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Text between = arguments.has(0) ? printed(arguments.at(0), run.heap()) : Text();
  Text out;
  bool is_first = true;
  for (const Value& item : items_of(run, self)) {
    if (!std::exchange(is_first, false)) out.append(between);
    const Text text = printed(arguments.has(1) ? item_by_path(run, item, arguments.at(1)) : item, run.heap());
    run.heap().step_over(text.size() + between.size());
    run.heap().expect(out.size() + text.size() + between.size());
    out.append(text);
  }
  return run.heap().text(std::move(out));
}

Value format(Interpreter& run, const Value& self, const Arguments& arguments) {
  const Value values = run.heap().list(arguments.call().positional, ListKind::kTuple);
  return run.heap().text(formatted_by_percent(run, printed(self, run.heap()), values));
}

constexpr Builtin kRows[] = {
    {"upper", "", [](Interpreter& run, const Value& self, const Arguments&) { return changed(run, self, upper); }},
    {"lower", "", [](Interpreter& run, const Value& self, const Arguments&) { return changed(run, self, lower); }},
    {"capitalize", "",
     [](Interpreter& run, const Value& self, const Arguments&) { return changed(run, self, capitalized); }},
    {"title", "",
     [](Interpreter& run, const Value& self, const Arguments&) { return changed(run, self, titled_words); }},
    {"string", "",
     [](Interpreter& run, const Value& self, const Arguments&) { return run.heap().text(printed(self, run.heap())); }},
    {"trim", "| chars", trim},
    {"replace", "old new | count", replace},
    {"indent", "| width first blank", indent},
    {"escape", "", escape},
    {"e", "", escape},
    {"tojson", "| ensure_ascii indent separators sort_keys", to_json_filter},
    {"join", "| d attribute", join},
    {"format", "*", format},
};

}  // namespace

std::span<const Builtin> text_filters() noexcept { return kRows; }

}  // namespace halfbyte::models::jinja
