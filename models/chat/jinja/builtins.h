// The tables of what a template finds without defining it: filters, tests, functions, and methods of strings, lists
// and dicts. Each row is a name, its parameters and a function.
#pragma once

#include <span>
#include <string_view>

#include "models/chat/jinja/arguments.h"
#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

class Interpreter;

struct Builtin {
  std::string_view name;
  // "needed, names | that may be left out"; "*": as many as one likes, which the function reads itself.
  std::string_view parameters;
  // `self`: what is filtered or tested, or whose method it is; none of a function.
  Value (*run)(Interpreter& run, const Value& self, const Arguments& arguments);
};

// Null: there is none of that name.
const Builtin* find_filter(std::string_view name) noexcept;
const Builtin* find_test(std::string_view name) noexcept;  // these give a bool
const Builtin* find_function(std::string_view name) noexcept;
const Builtin* find_method(const Value& self, std::string_view name) noexcept;
// Of the methods that Python has and jinja2's immutable sandbox denies, as they change their object.
bool is_denied_method(const Value& self, std::string_view name) noexcept;

// Rows of the several files.
std::span<const Builtin> text_filters() noexcept;
std::span<const Builtin> value_filters() noexcept;
std::span<const Builtin> list_filters() noexcept;
std::span<const Builtin> selecting_filters() noexcept;
std::span<const Builtin> tests() noexcept;
std::span<const Builtin> functions() noexcept;
std::span<const Builtin> text_methods() noexcept;
std::span<const Builtin> text_questions() noexcept;
std::span<const Builtin> dict_methods() noexcept;
std::span<const Builtin> list_methods() noexcept;
std::span<const Builtin> loop_methods() noexcept;

// The attributes of a filter's `attribute`: "a.b.0", or a number.
Value item_by_path(Interpreter& run, const Value& item, const Value& path);

// Runs a row. Errors: kInvalidArgument for arguments that are not its own.
Value run_builtin(Interpreter& run, const Builtin& builtin, const Value& self, const Call& call);

}  // namespace halfbyte::models::jinja
