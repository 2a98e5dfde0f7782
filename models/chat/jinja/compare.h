// Python's comparisons: truth, equality, order, and what makes two dict keys the same.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

class Heap;

std::string_view type_name(const Value& value) noexcept;  // as Python calls it: "str"

bool is_true(const Value& value) noexcept;

// Of any two values. A step for each that is compared.
bool equal(const Value& left, const Value& right, Heap& heap);

// left < right. Errors: kInvalidArgument for values that have no order.
bool less(const Value& left, const Value& right, Heap& heap);

// The same for keys that Python takes for one: 1, 1.0 and true. Errors: kInvalidArgument: a list or a dict is none.
std::string key_of(const Value& value);
std::string key_of(std::string_view text);

}  // namespace halfbyte::models::jinja
