// Filters that are about one value: numbers, defaults, types. Source: jinja2/filters.py.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "models/chat/jinja/builtins.h"
#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/operators.h"
#include "models/chat/jinja/print.h"
#include "models/chat/trim.h"

namespace halfbyte::models::jinja {
namespace {

void check_defined(const Value& value) {
  if (const auto* undefined = value.get<Undefined>()) fail(*undefined->problem);
}

Value default_value(Interpreter& run, const Value& self, const Arguments& arguments) {
  const bool is_taken = self.is_undefined() || (arguments.flag_or(1, false) && !is_true(self));
  return is_taken ? arguments.value_or(0, run.heap().text(Text())) : self;
}

// Without "_" between digits and a sign in front, which from_chars does not take.
std::optional<std::string> plain_number(std::string_view text) {
  text = trimmed(text);
  const bool has_sign = text.starts_with('+') && !text.starts_with("+-");
  if (has_sign) text.remove_prefix(1);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] == '_' && i > 0 && is_digit_at(i - 1) && is_digit_at(i + 1)) continue;
    out += text[i];
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

template <class Number, class... Base>
std::optional<Number> parsed(std::string_view text, Base... base) {
  const auto plain = plain_number(text);
  Number value{};
  if (!plain) return std::nullopt;
  const auto [end, error] = std::from_chars(plain->data(), plain->data() + plain->size(), value, base...);
  if (error == std::errc::result_out_of_range) fail("a number has more than 64 bits");
  return error == std::errc() && end == plain->data() + plain->size() ? std::optional(value) : std::nullopt;
}

std::int64_t whole_of(double number) {
  if (!(std::abs(number) < 9.2e18)) fail("a number has more than 64 bits");
  return static_cast<std::int64_t>(number);
}

Value to_integer(Interpreter&, const Value& self, const Arguments& arguments) {
  check_defined(self);
  if (const auto whole = self.integer()) return Value(*whole);
  if (const double* number = self.get<double>(); number && std::isfinite(*number)) return Value(whole_of(*number));
  if (const Text* text = self.text()) {
    const auto base = static_cast<int>(std::clamp<std::int64_t>(arguments.integer_or(1, 10), 2, 36));
    if (const auto whole = parsed<std::int64_t>(text->view(), base)) return Value(*whole);
    if (const auto real = parsed<double>(text->view()); real && std::isfinite(*real)) return Value(whole_of(*real));
  }
  return arguments.value_or(0, Value(std::int64_t{0}));
}

Value to_float(Interpreter&, const Value& self, const Arguments& arguments) {
  check_defined(self);
  if (const auto number = self.number()) return Value(*number);
  if (const Text* text = self.text()) {
    if (const auto real = parsed<double>(text->view())) return Value(*real);
  }
  return arguments.value_or(0, Value(0.0));
}

Value absolute(Interpreter& run, const Value& self, const Arguments&) {
  check_defined(self);
  if (!self.number()) fail("abs of a " + std::string(type_name(self)));
  return *self.number() < 0 ? find_unary("-")(run, self) : self;
}

// Python rounds halves to the even digit, of the number as it is stored.
double rounded(double number, std::int64_t digits) {
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (digits <= 0) return std::nearbyint(number * scale) / scale;
  char text[512];
  const auto end =
      std::to_chars(text, text + sizeof text, number, std::chars_format::fixed, static_cast<int>(digits)).ptr;
  double out = 0;
  std::from_chars(text, end, out);
  return out;
}

Value round(Interpreter&, const Value& self, const Arguments& arguments) {
  check_defined(self);
  if (!self.number()) fail("round of a " + std::string(type_name(self)));
  const std::int64_t digits = std::clamp<std::int64_t>(arguments.integer_or(0, 0), -300, 100);
  const Text* method = arguments.text_or_null(1);
  const std::string_view how = method ? method->view() : "common";
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (how == "ceil") return Value(std::ceil(*self.number() * scale) / scale);
  if (how == "floor") return Value(std::floor(*self.number() * scale) / scale);
  if (how != "common") fail("round knows common, ceil and floor");
  return self.integer() && digits >= 0 ? self : Value(rounded(*self.number(), digits));
}

Value length(Interpreter& run, const Value& self, const Arguments&) {
  if (self.is_undefined()) return Value(std::int64_t{0});
  if (const auto* box = self.get<std::shared_ptr<const StringBox>>())
    return Value(static_cast<std::int64_t>((*box)->characters));
  if (const DictBox* dict = self.dict()) return Value(static_cast<std::int64_t>(dict->entries.size()));
  const ListBox* list = self.list();
  if (!list || list->kind == ListKind::kGenerator) fail("a " + std::string(type_name(self)) + " has no length");
  run.heap().step();
  return Value(static_cast<std::int64_t>(list->items.size()));
}

Value attribute(Interpreter& run, const Value& self, const Arguments& arguments) {
  return attribute_of(run, self, arguments.text(0).bytes());
}

constexpr Builtin kRows[] = {
    {"default", "| default_value boolean", default_value},
    {"d", "| default_value boolean", default_value},
    {"int", "| default base", to_integer},
    {"float", "| default", to_float},
    {"abs", "", absolute},
    {"round", "| precision method", round},
    {"length", "", length},
    {"count", "", length},
    {"attr", "name", attribute},
    {"safe", "",
     [](Interpreter& run, const Value& self, const Arguments&) {
       return run.heap().text(printed(self, run.heap()), true);
     }},
};

}  // namespace

std::span<const Builtin> value_filters() noexcept { return kRows; }

}  // namespace halfbyte::models::jinja
