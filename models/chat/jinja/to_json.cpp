// Values as JSON text. Source: Python's json.dumps.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/print.h"

namespace halfbyte::models::jinja {
namespace {

struct Escape {
  char32_t code;
  std::string_view letters;
};
constexpr Escape kEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"},
                               {'\t', "\\t"}, {'\f', "\\f"},  {'\b', "\\b"}};

void append_unicode(std::string& out, char32_t code) {
  char buffer[16];
  const auto put = [&](unsigned unit) {
    const int size = std::snprintf(buffer, sizeof buffer, "\\u%04x", unit);
    out.append(buffer, static_cast<std::size_t>(size));
  };
  if (code < 0x10000) return put(static_cast<unsigned>(code));
  put(0xD800 + static_cast<unsigned>((code - 0x10000) >> 10));
  put(0xDC00 + static_cast<unsigned>((code - 0x10000) & 0x3FF));
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, Heap& heap) : style_(style), heap_(heap) {}

  void put(const Value& value) {
    heap_.step();
    if (const Text* text = value.text()) return string(*text);
    if (const ListBox* list = value.list(); list && list->kind <= ListKind::kTuple) return put_list(*list);
    if (const DictBox* dict = value.dict()) return put_dict(dict->entries);
    const auto word = scalar(value);
    if (!word) fail("a " + std::string(type_name(value)) + " is not JSON serializable");
    own(*word);
  }

  Text take() { return std::move(out_); }

 private:
  static std::optional<std::string> scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
    if (const auto* whole = value.get<std::int64_t>()) return std::to_string(*whole);
    const auto* number = value.get<double>();
    if (!number) return std::nullopt;
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number < 0 ? "-Infinity" : "Infinity";
    return float_text(*number);
  }

  void own(std::string_view bytes) { out_.append(bytes, Origin::kTemplate); }

  void string(const Text& text) {
    heap_.step_over(text.size());
    heap_.expect(out_.size() + text.size());
    own("\"");
    for (const Run& run : text.runs()) {
      std::string bytes;
      for (std::size_t at = run.begin; at < run.end;) {
        const Character character = character_at(text.view(), at);
        append_escaped(bytes, text.view().substr(at, character.size), character.code);
        at += character.size;
      }
      out_.append(bytes, run.origin);
    }
    own("\"");
  }

  void append_escaped(std::string& out, std::string_view bytes, char32_t code) const {
    const auto* row = std::ranges::find(kEscapes, code, &Escape::code);
    if (row != std::end(kEscapes)) {
      out += row->letters;
    } else if (code < 0x20 || (style_.is_ascii && code > 0x7E)) {
      append_unicode(out, code);
    } else {
      out += bytes;
    }
  }

  void new_line() {
    if (!style_.indent) return;
    heap_.expect(out_.size() + level_ * style_.indent->size());
    heap_.step_over(level_ * style_.indent->size());
    own("\n");
    for (std::size_t i = 0; i < level_; ++i) own(*style_.indent);
  }

  template <class Items, class Put>
  void put_all(const Items& items, std::string_view open, std::string_view close, const Put& put_one) {
    own(open);
    if (items.empty()) return own(close);
    ++level_;
    bool is_first = true;
    for (const auto& item : items) {
      if (!std::exchange(is_first, false)) own(style_.between_items);
      new_line();
      put_one(item);
    }
    --level_;
    new_line();
    own(close);
  }

  void put_list(const ListBox& list) {
    put_all(list.items, "[", "]", [&](const Value& item) { put(item); });
  }

  void put_dict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sorts_keys) {
      heap_.step(entries.size() * 4);
      std::ranges::stable_sort(entries, [&](const auto* a, const auto* b) { return less(a->key, b->key, heap_); });
    }
    put_all(entries, "{", "}", [&](const Dict::Entry* entry) {
      key(entry->key);
      own(style_.after_key);
      put(entry->value);
    });
  }

  void key(const Value& key) {
    if (const Text* text = key.text()) return string(*text);
    const auto word = scalar(key);
    if (!word) fail("a " + std::string(type_name(key)) + " is no key in JSON");
    own("\"" + *word + "\"");
  }

  const JsonStyle& style_;
  Heap& heap_;
  Text out_;
  std::size_t level_ = 0;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style, Heap& heap) {
  JsonPrinter printer(style, heap);
  printer.put(value);
  return printer.take();
}

}  // namespace halfbyte::models::jinja
