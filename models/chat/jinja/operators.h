// What operators do, by their spelling.
#pragma once

#include <string_view>

#include "models/chat/jinja/syntax.h"

namespace halfbyte::models::jinja {

// Null: there is none of that name.
UnaryFunction find_unary(std::string_view name) noexcept;            // + - not
BinaryFunction find_binary(std::string_view name) noexcept;          // + - * / // % **
ComparisonFunction find_comparison(std::string_view name) noexcept;  // == != < <= > >= in, not in

}  // namespace halfbyte::models::jinja
