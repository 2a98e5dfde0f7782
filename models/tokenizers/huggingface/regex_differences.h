// Where Oniguruma's character classes and PCRE2's differ, because their Unicode versions do.
#pragma once

#include <string_view>

namespace halfbyte::models::huggingface {

// Ranges as they stand between brackets.
struct ClassDifference {
  std::string_view name;
  std::string_view added;    // Oniguruma's class has them, PCRE2's has not
  std::string_view removed;  // PCRE2's has them
};

// Of a general category ("L", "Lu"), a script, a binary property or a class of char_set.cpp (in small letters); empty
// where both agree.
ClassDifference class_difference(std::string_view name);

}  // namespace halfbyte::models::huggingface
