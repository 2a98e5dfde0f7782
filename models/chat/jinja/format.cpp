#include "models/chat/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/print.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {
namespace {

constexpr int kMostDigits = 100;  // of a width or a precision

struct Directive {
  std::string flags;
  int width = 0;
  int precision = -1;
  char letter = 's';
};

int take_digits(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || value > kMostDigits) refuse("a format is wider than any");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// Behind the %.
Directive take_directive(std::string_view& text) {
  Directive out;
  while (!text.empty() && std::string_view("-+ 0").find(text.front()) != std::string_view::npos) {
    if (out.flags.find(text.front()) == std::string::npos) out.flags += text.front();
    text.remove_prefix(1);
  }
  if (!text.empty() && text.front() >= '0' && text.front() <= '9') out.width = take_digits(text);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    out.precision = take_digits(text);
  }
  if (text.empty()) fail("a format ends within a directive");
  out.letter = text.front();
  text.remove_prefix(1);
  return out;
}

std::string in_form(const Directive& directive, const Value& value) {
  const auto number = value.number();
  const std::string letter(1, directive.letter == 'i' ? 'd' : directive.letter);
  if (!number) fail("a format's %" + letter + " wants a number, not a " + std::string(type_name(value)));
  const bool is_real = letter.find_first_of("feEgG") == 0;
  if (std::abs(*number) > (is_real ? 1e100 : 9e18)) refuse("a format is given a larger number than any");
  const int precision = directive.precision < 0 ? (is_real ? 6 : 1) : directive.precision;
  const std::string form = "%" + directive.flags + "*.*" + (is_real ? "" : "ll") + letter;
  const long long whole = value.integer() ? *value.integer() : static_cast<long long>(is_real ? 0 : *number);
  char out[512];  // 101 digits, and 100 behind the point
  const int size = is_real ? std::snprintf(out, sizeof out, form.c_str(), directive.width, precision, *number)
                           : std::snprintf(out, sizeof out, form.c_str(), directive.width, precision, whole);
  return {out, std::min(static_cast<std::size_t>(size), sizeof out - 1)};
}

Text in_width(const Directive& directive, const Text& text) {
  const std::size_t width = static_cast<std::size_t>(directive.width);
  const std::string blanks(text.size() < width ? width - text.size() : 0, ' ');
  const bool is_left = directive.flags.find('-') != std::string::npos;
  Text out(is_left ? "" : blanks);
  out.append(text);
  if (is_left) out.append(blanks, Origin::kTemplate);
  return out;
}

Text one_value(Interpreter& run, const Directive& directive, const Value& value) {
  if (directive.letter == 's' && directive.precision < 0) return in_width(directive, printed(value, run.heap()));
  if (directive.letter == 'r') return in_width(directive, quoted(value, run.heap()));
  if (std::string_view("difFeEgGx").find(directive.letter) == std::string_view::npos || directive.letter == 'F')
    refuse("a format's %" + std::string(1, directive.letter) + " is not known here");
  return Text(in_form(directive, value));
}

// A form's own text between places, and what is put into these.
class Builder {
 public:
  Builder(Interpreter& run, const Text& form) : run_(run), form_(form) {}
  std::string_view rest() const { return form_.view().substr(at_); }
  bool is_done() const { return at_ >= form_.size(); }
  void copy(std::size_t bytes) {
    add(form_.part(at_, at_ + bytes));
    at_ += bytes;
  }
  void skip_to(std::string_view rest) { at_ = form_.size() - rest.size(); }
  void add(const Text& text) {
    run_.heap().step_over(text.size());
    run_.heap().expect(out_.size() + text.size());
    out_.append(text);
  }
  Text take() { return std::move(out_); }

 private:
  Interpreter& run_;
  const Text& form_;
  std::size_t at_ = 0;
  Text out_;
};

Value field(const Call& call, std::string_view name, std::size_t& count) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool is_number = error == std::errc() && end == name.data() + name.size();
  if (name.empty()) index = count++;
  if (name.empty() || is_number) {
    if (index >= call.positional.size()) fail("a format has more places than there are values");
    return call.positional[index];
  }
  const auto found = std::ranges::find_if(call.named, [&](const auto& each) { return each.first == name; });
  if (found == call.named.end()) refuse("a format's place " + in_quotes(name) + " is not known here");
  return found->second;
}

}  // namespace

Text formatted_by_percent(Interpreter& run, const Text& form, const Value& values) {
  const ListBox* list = values.list();
  const bool is_tuple = list && list->kind == ListKind::kTuple;
  const std::vector<Value> all = is_tuple ? list->items : std::vector<Value>{values};
  Builder out(run, form);
  std::size_t used = 0;
  while (!out.is_done()) {
    out.copy(std::min(out.rest().find('%'), out.rest().size()));
    if (out.is_done()) break;
    std::string_view rest = out.rest().substr(1);
    if (rest.starts_with('(')) refuse("a format with names is not known here");
    const Directive directive = take_directive(rest);
    out.skip_to(rest);
    if (directive.letter == '%') {
      out.add(Text("%"));
      continue;
    }
    if (used >= all.size()) fail("a format has more places than there are values");
    out.add(one_value(run, directive, all[used++]));
  }
  if (used < all.size() && !values.dict()) fail("a format has fewer places than there are values");
  return out.take();
}

Text formatted_by_braces(Interpreter& run, const Text& form, const Call& call) {
  Builder out(run, form);
  std::size_t count = 0;
  while (!out.is_done()) {
    out.copy(std::min(out.rest().find_first_of("{}"), out.rest().size()));
    if (out.is_done()) break;
    const std::string_view rest = out.rest();
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      out.copy(1);
      out.skip_to(rest.substr(2));
      continue;
    }
    const std::size_t end = rest.find('}');
    if (end == std::string_view::npos || end == 0) fail("a format has a brace without the other");
    out.add(printed(field(call, rest.substr(1, end - 1), count), run.heap()));
    out.skip_to(rest.substr(end + 1));
  }
  return out.take();
}

}  // namespace halfbyte::models::jinja
