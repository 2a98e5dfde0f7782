#include "models/chat/jinja/print.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"

#include <utf8proc.h>

namespace halfbyte::models::jinja {
namespace {

// Python escapes what str.isprintable() denies.
bool is_printable(char32_t code) noexcept {
  if (code == ' ') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

void append_escape(std::string& out, const char* form, char32_t code) {
  char buffer[16];
  const int size = std::snprintf(buffer, sizeof buffer, form, static_cast<unsigned>(code));
  out.append(buffer, static_cast<std::size_t>(size));
}

void append_repr(std::string& out, std::string_view text, std::size_t at, Character character, char quote) {
  constexpr std::string_view kLetters = "\nn\tt\rr\\\\";
  const char32_t code = character.code;
  const std::size_t letter = code < 0x80 ? kLetters.find(static_cast<char>(code)) : std::string_view::npos;
  if (letter != std::string_view::npos && (letter % 2 == 0 || code == '\\')) {
    out += '\\';
    out += kLetters[letter | 1];
  } else if (code == static_cast<char32_t>(quote)) {
    out += '\\';
    out += quote;
  } else if (is_printable(code)) {
    out += text.substr(at, character.size);
  } else {
    append_escape(out, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
  }
}

Text repr_of(const Text& text) {
  const bool has_single = text.view().find('\'') != std::string_view::npos;
  const char quote = has_single && text.view().find('"') == std::string_view::npos ? '"' : '\'';
  Text out(std::string(1, quote));
  for (const Run& run : text.runs()) {
    std::string bytes;
    for (std::size_t at = run.begin; at < run.end;) {
      const Character character = character_at(text.view(), at);
      append_repr(bytes, text.view(), at, character, quote);
      at += character.size;
    }
    out.append(bytes, run.origin);
  }
  out.append(std::string(1, quote), Origin::kTemplate);
  return out;
}

class Printer {
 public:
  explicit Printer(Heap& heap) : heap_(heap) {}

  void repr(const Value& value) {
    heap_.step();
    if (const Text* text = value.text()) return add(repr_of(*text));
    if (const ListBox* list = value.list()) return list_repr(*list);
    if (const DictBox* dict = value.dict()) return dict_repr(dict->entries);
    if (value.is_undefined()) return own("Undefined");
    own(plain(value));
  }

  static std::string plain(const Value& value) {
    if (value.is_none()) return "None";
    if (const bool* flag = value.get<bool>()) return *flag ? "True" : "False";
    if (const auto* whole = value.get<std::int64_t>()) return std::to_string(*whole);
    if (const auto* number = value.get<double>()) return float_text(*number);
    refuse("a " + std::string(type_name(value)) + " is printed");
  }

  Text take() { return std::move(out_); }

 private:
  void own(std::string_view bytes) { out_.append(bytes, Origin::kTemplate); }
  void add(const Text& text) {
    heap_.step_over(text.size());
    heap_.expect(out_.size() + text.size());
    out_.append(text);
  }

  void list_repr(const ListBox& list) {
    if (list.kind == ListKind::kGenerator || list.kind == ListKind::kRange) refuse("a generator or range is printed");
    if (list.kind == ListKind::kView) own(std::string(list.name) + "(");
    own(list.kind == ListKind::kTuple ? "(" : "[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) own(", ");
      repr(list.items[i]);
    }
    if (list.kind == ListKind::kTuple && list.items.size() == 1) own(",");
    own(list.kind == ListKind::kTuple ? ")" : "]");
    if (list.kind == ListKind::kView) own(")");
  }

  void dict_repr(const Dict& dict) {
    own("{");
    bool is_first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!std::exchange(is_first, false)) own(", ");
      repr(key);
      own(": ");
      repr(value);
    }
    own("}");
  }

  Heap& heap_;
  Text out_;
};

}  // namespace

// Source: Python's repr of a float: the shortest digits that give it back, an exponent below 1e-4 and from 1e16 on.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  const double size = std::abs(number);
  const bool has_exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  char buffer[64];
  const auto format = has_exponent ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, format).ptr;
  std::string text(buffer, end);
  if (!has_exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Text printed(const Value& value, Heap& heap) {
  if (const Text* text = value.text()) return *text;
  if (value.is_undefined()) return {};
  if (!value.list() && !value.dict()) return Text(Printer::plain(value));
  return quoted(value, heap);
}

Text quoted(const Value& value, Heap& heap) {
  Printer printer(heap);
  printer.repr(value);
  return printer.take();
}

}  // namespace halfbyte::models::jinja
