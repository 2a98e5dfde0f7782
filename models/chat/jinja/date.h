// The time that templates ask for by strftime_now.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace halfbyte::models::jinja {

struct Date {
  int year = 1970;
  int month = 1;  // from 1
  int day = 1;
  int hour = 0;
  int minute = 0;
  int second = 0;
};

Date local_now();

// "26 Jul 2024" or "2024-07-26". Nothing: no such date.
std::optional<Date> parse_date(std::string_view text);

// Python's strftime with English names. Errors: kUnsupported for a directive that is not known here.
std::string formatted_date(const Date& date, std::string_view format);

}  // namespace halfbyte::models::jinja
