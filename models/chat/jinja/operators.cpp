#include "models/chat/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/format.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/text_operations.h"

namespace halfbyte::models::jinja {
namespace {

void check_defined(const Value& value) {
  if (const auto* undefined = value.get<Undefined>()) fail(*undefined->problem);
}

[[noreturn]] void fail_types(std::string_view sign, const Value& left, const Value& right) {
  check_defined(left);
  check_defined(right);
  fail("a " + std::string(type_name(left)) + " " + std::string(sign) + " a " + std::string(type_name(right)));
}

[[noreturn]] void fail_overflow() { fail("a number has more than 64 bits"); }

// Of two numbers; whole ones stay so.
template <class Whole, class Real>
Value computed(std::string_view sign, const Value& left, const Value& right, const Whole& whole, const Real& real) {
  const auto a = left.integer();
  const auto b = right.integer();
  if (a && b) {
    std::int64_t out = 0;
    if (whole(*a, *b, &out)) fail_overflow();
    return Value(out);
  }
  const auto x = left.number();
  const auto y = right.number();
  if (!x || !y) fail_types(sign, left, right);
  return Value(static_cast<double>(real(*x, *y)));
}

Value joined_lists(Interpreter& run, const ListBox& left, const ListBox& right) {
  run.heap().expect((left.items.size() + right.items.size()) * sizeof(Value));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return run.heap().list(std::move(items), left.kind);
}

bool is_sequence(const ListBox* list) {
  return list && (list->kind == ListKind::kList || list->kind == ListKind::kTuple);
}

Value add(Interpreter& run, const Value& left, const Value& right) {
  if (left.text() && right.text()) {
    run.heap().expect(left.text()->size() + right.text()->size());
    const bool is_markup = left.is_markup() || right.is_markup();
    Text text = is_markup && !left.is_markup() ? escaped(*left.text()) : *left.text();
    text.append(is_markup && !right.is_markup() ? escaped(*right.text()) : *right.text());
    return run.heap().text(std::move(text), is_markup);
  }
  const ListBox* const first = left.list();
  const ListBox* const second = right.list();
  if (is_sequence(first) && is_sequence(second) && first->kind == second->kind)
    return joined_lists(run, *first, *second);
  return computed(
      "+", left, right, [](auto a, auto b, auto* out) { return __builtin_add_overflow(a, b, out); },
      [](double a, double b) { return a + b; });
}

Value subtract(Interpreter&, const Value& left, const Value& right) {
  return computed(
      "-", left, right, [](auto a, auto b, auto* out) { return __builtin_sub_overflow(a, b, out); },
      [](double a, double b) { return a - b; });
}

// A string or list so many times.
Value repeated(Interpreter& run, const Value& what, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(0, count));
  const std::size_t one = what.text() ? what.text()->held_bytes() : what.list()->items.size() * sizeof(Value);
  std::size_t all = 0;
  if (__builtin_mul_overflow(one, times, &all)) all = static_cast<std::size_t>(-1);
  run.heap().expect(all);
  run.heap().step_over(all);
  if (const Text* text = what.text()) {
    Text out;
    for (std::size_t i = 0; i < times && one > 0; ++i) out.append(*text);
    return run.heap().text(std::move(out));
  }
  std::vector<Value> items;
  for (std::size_t i = 0; i < times && one > 0; ++i)
    items.insert(items.end(), what.list()->items.begin(), what.list()->items.end());
  return run.heap().list(std::move(items), what.list()->kind);
}

Value multiply(Interpreter& run, const Value& left, const Value& right) {
  const auto repeats = [](const Value& value) { return value.text() || is_sequence(value.list()); };
  if (repeats(left) && right.integer()) return repeated(run, left, *right.integer());
  if (repeats(right) && left.integer()) return repeated(run, right, *left.integer());
  return computed(
      "*", left, right, [](auto a, auto b, auto* out) { return __builtin_mul_overflow(a, b, out); },
      [](double a, double b) { return a * b; });
}

void check_divisor(const Value& right) {
  if (right.number() == 0.0) fail("division by zero");
}

Value divide(Interpreter&, const Value& left, const Value& right) {
  if (!left.number() || !right.number()) fail_types("/", left, right);
  check_divisor(right);
  return Value(*left.number() / *right.number());
}

// Both round down, as Python's do.
Value divide_down(Interpreter&, const Value& left, const Value& right) {
  if (left.number()) check_divisor(right);
  return computed(
      "//", left, right,
      [](std::int64_t a, std::int64_t b, std::int64_t* out) {
        if (b == -1) return __builtin_sub_overflow(std::int64_t{0}, a, out);
        *out = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
        return false;
      },
      [](double a, double b) { return std::floor(a / b); });
}

Value modulo(Interpreter& run, const Value& left, const Value& right) {
  if (const Text* text = left.text()) return run.heap().text(formatted_by_percent(run, *text, right));
  if (left.number()) check_divisor(right);
  return computed(
      "%", left, right,
      [](std::int64_t a, std::int64_t b, std::int64_t* out) {
        *out = b == -1 ? 0 : a % b;
        if (*out != 0 && (*out < 0) != (b < 0)) *out += b;
        return false;
      },
      [](double a, double b) {
        const double rest = std::fmod(a, b);
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
      });
}

bool whole_power(std::int64_t base, std::int64_t exponent, std::int64_t* out) {
  *out = 1;
  for (bool overflows = false; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && (overflows || __builtin_mul_overflow(*out, base, out))) return true;
    if (exponent > 1) overflows = __builtin_mul_overflow(base, base, &base) || overflows;
  }
  return false;
}

Value power(Interpreter&, const Value& left, const Value& right) {
  const auto exponent = right.integer();
  if (left.integer() && exponent && *exponent < 0)
    return Value(std::pow(*left.number(), static_cast<double>(*exponent)));
  return computed("**", left, right, whole_power, [](double a, double b) { return std::pow(a, b); });
}

Value negative(Interpreter& run, const Value& value) { return subtract(run, Value(std::int64_t{0}), value); }

Value negated(Interpreter& run, const Value& value) {
  if (const double* number = value.get<double>()) return Value(-*number);
  return negative(run, value);
}

Value positive(Interpreter& run, const Value& value) { return add(run, Value(std::int64_t{0}), value); }

Value opposite(Interpreter&, const Value& value) { return Value(!is_true(value)); }

struct UnaryRow {
  std::string_view name;
  UnaryFunction run;
};
constexpr UnaryRow kUnary[] = {{"-", negated}, {"+", positive}, {"not", opposite}};

struct BinaryRow {
  std::string_view name;
  BinaryFunction run;
};
constexpr BinaryRow kBinary[] = {{"+", add},          {"-", subtract}, {"*", multiply}, {"/", divide},
                                 {"//", divide_down}, {"%", modulo},   {"**", power}};

struct ComparisonRow {
  std::string_view name;
  ComparisonFunction run;
};
constexpr ComparisonRow kComparisons[] = {
    {"==", [](Interpreter& run, const Value& a, const Value& b) { return equal(a, b, run.heap()); }},
    {"!=", [](Interpreter& run, const Value& a, const Value& b) { return !equal(a, b, run.heap()); }},
    {"<", [](Interpreter& run, const Value& a, const Value& b) { return less(a, b, run.heap()); }},
    {">", [](Interpreter& run, const Value& a, const Value& b) { return less(b, a, run.heap()); }},
    {"<=", [](Interpreter& run, const Value& a,
              const Value& b) { return less(a, b, run.heap()) || equal(a, b, run.heap()); }},
    {">=", [](Interpreter& run, const Value& a,
              const Value& b) { return less(b, a, run.heap()) || equal(a, b, run.heap()); }},
    {"in", [](Interpreter& run, const Value& a, const Value& b) { return contains(run, b, a); }},
    {"not in", [](Interpreter& run, const Value& a, const Value& b) { return !contains(run, b, a); }},
};

template <class Rows>
auto find_in(const Rows& rows, std::string_view name) noexcept {
  const auto row = std::ranges::find_if(rows, [&](const auto& each) { return each.name == name; });
  return row == std::end(rows) ? nullptr : row->run;
}

}  // namespace

UnaryFunction find_unary(std::string_view name) noexcept { return find_in(kUnary, name); }
BinaryFunction find_binary(std::string_view name) noexcept { return find_in(kBinary, name); }
ComparisonFunction find_comparison(std::string_view name) noexcept { return find_in(kComparisons, name); }

}  // namespace halfbyte::models::jinja
