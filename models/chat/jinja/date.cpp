#include "models/chat/jinja/date.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <iterator>

#include "models/chat/jinja/failure.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

std::string number(int value, const char* form) {
  char buffer[16];
  const int size = std::snprintf(buffer, sizeof buffer, form, value);
  return std::string(buffer, static_cast<std::size_t>(size));
}

std::chrono::sys_days days_of(const Date& date) { return std::chrono::year(date.year) / date.month / date.day; }

std::size_t week_day(const Date& date) { return std::chrono::weekday(days_of(date)).c_encoding(); }

int day_of_year(const Date& date) {
  return static_cast<int>((days_of(date) - days_of({.year = date.year})).count()) + 1;
}

int hour_of_twelve(const Date& date) { return date.hour % 12 == 0 ? 12 : date.hour % 12; }

struct Directive {
  std::string_view letters;
  std::string (*text)(const Date&);
};

constexpr Directive kDirectives[] = {
    {"d", [](const Date& date) { return number(date.day, "%02d"); }},
    {"-d", [](const Date& date) { return number(date.day, "%d"); }},
    {"e", [](const Date& date) { return number(date.day, "%2d"); }},
    {"m", [](const Date& date) { return number(date.month, "%02d"); }},
    {"-m", [](const Date& date) { return number(date.month, "%d"); }},
    {"b", [](const Date& date) { return std::string(kMonths[static_cast<std::size_t>(date.month - 1)].substr(0, 3)); }},
    {"h", [](const Date& date) { return std::string(kMonths[static_cast<std::size_t>(date.month - 1)].substr(0, 3)); }},
    {"B", [](const Date& date) { return std::string(kMonths[static_cast<std::size_t>(date.month - 1)]); }},
    {"a", [](const Date& date) { return std::string(kDays[week_day(date)].substr(0, 3)); }},
    {"A", [](const Date& date) { return std::string(kDays[week_day(date)]); }},
    {"w", [](const Date& date) { return std::to_string(week_day(date)); }},
    {"u", [](const Date& date) { return std::to_string(week_day(date) == 0 ? 7 : week_day(date)); }},
    {"Y", [](const Date& date) { return std::to_string(date.year); }},
    {"y", [](const Date& date) { return number(date.year % 100, "%02d"); }},
    {"j", [](const Date& date) { return number(day_of_year(date), "%03d"); }},
    {"H", [](const Date& date) { return number(date.hour, "%02d"); }},
    {"-H", [](const Date& date) { return number(date.hour, "%d"); }},
    {"I", [](const Date& date) { return number(hour_of_twelve(date), "%02d"); }},
    {"-I", [](const Date& date) { return number(hour_of_twelve(date), "%d"); }},
    {"M", [](const Date& date) { return number(date.minute, "%02d"); }},
    {"S", [](const Date& date) { return number(date.second, "%02d"); }},
    {"p", [](const Date& date) { return std::string(date.hour < 12 ? "AM" : "PM"); }},
    {"F", [](const Date& date) { return formatted_date(date, "%Y-%m-%d"); }},
    {"T", [](const Date& date) { return formatted_date(date, "%H:%M:%S"); }},
    {"D", [](const Date& date) { return formatted_date(date, "%m/%d/%y"); }},
    {"R", [](const Date& date) { return formatted_date(date, "%H:%M"); }},
    {"x", [](const Date& date) { return formatted_date(date, "%m/%d/%y"); }},
    {"X", [](const Date& date) { return formatted_date(date, "%H:%M:%S"); }},
    {"c", [](const Date& date) { return formatted_date(date, "%a %b %e %H:%M:%S %Y"); }},
    {"n", [](const Date&) { return std::string("\n"); }},
    {"t", [](const Date&) { return std::string("\t"); }},
    {"%", [](const Date&) { return std::string("%"); }},
    {"z", [](const Date&) { return std::string(); }},  // of a time without a zone
    {"Z", [](const Date&) { return std::string(); }},
};

// Takes a number's digits.
std::optional<int> take_number(std::string_view& text, std::size_t most) {
  int value = 0;
  const std::string_view digits = text.substr(0, std::min(most, text.size()));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - digits.data()));
  return value;
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

std::optional<int> take_month(std::string_view& text) {
  for (std::size_t i = 0; i < kMonths.size(); ++i) {
    if (take(text, kMonths[i]) || take(text, kMonths[i].substr(0, 3))) return static_cast<int>(i) + 1;
  }
  return std::nullopt;
}

}  // namespace

Date local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {.year = local.tm_year + 1900,
          .month = local.tm_mon + 1,
          .day = local.tm_mday,
          .hour = local.tm_hour,
          .minute = local.tm_min,
          .second = std::min(local.tm_sec, 59)};
}

std::optional<Date> parse_date(std::string_view text) {
  const bool is_iso = text.size() == 10 && text[4] == '-';
  const auto first = take_number(text, is_iso ? 4 : 2);
  if (!first || !take(text, is_iso ? "-" : " ")) return std::nullopt;
  const auto month = is_iso ? take_number(text, 2) : take_month(text);
  if (!month || !take(text, is_iso ? "-" : " ")) return std::nullopt;
  const auto last = take_number(text, is_iso ? 2 : 4);
  if (!last || !text.empty()) return std::nullopt;
  const Date date{.year = is_iso ? *first : *last, .month = *month, .day = is_iso ? *last : *first};
  const auto day = std::chrono::year(date.year) / date.month / date.day;
  return day.ok() ? std::optional(date) : std::nullopt;
}

std::string formatted_date(const Date& date, std::string_view format) {
  std::string out;
  while (!format.empty()) {
    const std::size_t plain = std::min(format.find('%'), format.size());
    out += format.substr(0, plain);
    format.remove_prefix(plain);
    if (format.empty()) break;
    const std::string_view letters = format.substr(1, format.substr(1).starts_with('-') ? 2 : 1);
    const auto* row = std::ranges::find(kDirectives, letters, &Directive::letters);
    if (row == std::end(kDirectives)) refuse("strftime_now has no " + in_quotes("%" + std::string(letters)) + " here");
    out += row->text(date);
    format.remove_prefix(1 + letters.size());
  }
  return out;
}

}  // namespace halfbyte::models::jinja
