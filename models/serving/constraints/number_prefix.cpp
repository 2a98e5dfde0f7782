#include "models/serving/constraints/number_prefix.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "models/serving/constraints/schema.h"

namespace halfbyte::serving {
namespace {

__extension__ typedef __int128 Wide;  // values times ten to the digits behind the point

constexpr std::int64_t kEndless = SchemaNode::kEndless;
constexpr std::int64_t kDigits = 15, kBehindPoint = 9, kExponentDigits = 2;

Wide power(std::int64_t exponent) {
  Wide out = 1;
  for (; exponent > 0; --exponent) out *= 10;
  return out;
}

// A beginning, taken apart.
struct Parts {
  bool is_negative = false, has_point = false, has_exponent = false;
  std::string whole, fraction, exponent;
};

bool are_digits(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Nothing: no number begins so.
std::optional<Parts> parts_of(std::string text, const SchemaNode& node) {
  Parts out;
  if (text.starts_with('-')) {
    out.is_negative = true;
    text.erase(0, 1);
  }
  if (const std::size_t e = text.find_first_of("eE"); e != std::string::npos) {
    out.has_exponent = true;
    out.exponent = text.substr(e + 1);
    text.resize(e);
    if (!out.exponent.empty() && (out.exponent[0] == '+' || out.exponent[0] == '-')) out.exponent.erase(0, 1);
  }
  if (const std::size_t point = text.find('.'); point != std::string::npos) {
    out.has_point = true;
    out.fraction = text.substr(point + 1);
    text.resize(point);
  }
  out.whole = text;
  const bool is_whole = are_digits(out.whole) && (out.whole.size() < 2 || out.whole[0] != '0') &&
                        out.whole.size() <= static_cast<std::size_t>(kDigits);
  const bool is_fraction = are_digits(out.fraction) && out.fraction.size() <= static_cast<std::size_t>(kBehindPoint) &&
                           !(out.has_point && (out.whole.empty() || node.is_integer));
  const bool is_exponent =
      are_digits(out.exponent) && out.exponent.size() <= static_cast<std::size_t>(kExponentDigits) &&
      !(out.has_exponent &&
        (node.is_integer || node.is_bounded || out.whole.empty() || (out.has_point && out.fraction.empty())));
  return is_whole && is_fraction && is_exponent ? std::optional(out) : std::nullopt;
}

struct Bounds {
  Wide low, high;
  // Whether a multiple of `unit` lies in [first, last] and within the bounds.
  bool hold(Wide first, Wide last, Wide unit) const {
    const Wide from = std::max(first, low), to = std::min(last, high);
    const Wide multiple = (from + unit - 1) / unit * unit;
    return from <= to && multiple <= to;
  }
};

// A bound as it is written, shortest, times ten to the digits behind the point: up, or down, to a whole number.
Wide scaled(double value, std::int64_t behind_point, bool is_up) {
  char text[512];
  const auto [end, error] = std::to_chars(text, text + sizeof text, std::abs(value), std::chars_format::fixed);
  const std::string digits(text, end);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  Wide out = 0;
  for (std::size_t i = 0; i < point; ++i) out = out * 10 + (digits[i] - '0');
  bool has_more = false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(behind_point) || point + 1 + i < digits.size(); ++i) {
    const int digit = point + 1 + i < digits.size() ? digits[point + 1 + i] - '0' : 0;
    if (i < static_cast<std::size_t>(behind_point)) {
      out = out * 10 + digit;
    } else {
      has_more |= digit != 0;
    }
  }
  const bool is_away = is_up == (value > 0);
  if (has_more && is_away) ++out;
  return value < 0 ? -out : out;
}

// Of magnitudes of that sign; from 0 on.
Bounds bounds_of(const SchemaNode& node, bool is_negative, std::int64_t behind_point) {
  const double low = is_negative ? -node.high : node.low, high = is_negative ? -node.low : node.high;
  Bounds out{scaled(low, behind_point, true), scaled(high, behind_point, false)};
  out.low = std::max<Wide>(out.low, is_negative && node.is_integer ? 1 : 0);  // no -0
  return out;
}

Wide value_of(const std::string& digits) {
  Wide out = 0;
  for (const char c : digits) out = out * 10 + (c - '0');
  return out;
}

std::int64_t rest_of_fraction(const Parts& parts, const Bounds& bounds) {
  const auto there = static_cast<std::int64_t>(parts.fraction.size());
  const Wide unit = power(kBehindPoint - there);
  const Wide value = value_of(parts.whole) * power(kBehindPoint) + value_of(parts.fraction) * unit;
  for (std::int64_t more = there == 0 ? 1 : 0; there + more <= kBehindPoint; ++more) {
    const Wide step = power(kBehindPoint - there - more);
    if (bounds.hold(value, value + unit - step, step)) return more;
  }
  return kEndless;
}

std::int64_t rest_of_whole(const Parts& parts, const Bounds& bounds, std::int64_t behind_point) {
  const auto there = static_cast<std::int64_t>(parts.whole.size());
  const std::int64_t most = parts.whole == "0" ? 0 : kDigits - there;
  const Wide scale = power(behind_point), value = value_of(parts.whole);
  std::int64_t best = kEndless;
  for (std::int64_t more = there == 0 ? 1 : 0; more <= most; ++more) {
    const Wide first = there > 0 ? value * power(more) : more == 1 ? 0 : power(more - 1);
    const Wide last = (there > 0 ? value + 1 : 1) * power(more) - 1;
    for (std::int64_t behind = 0; behind <= behind_point; ++behind) {
      const Wide step = power(behind_point - behind);
      const std::int64_t length = more + (behind > 0 ? behind + 1 : 0);
      if (length < best && bounds.hold(first * scale, (last + 1) * scale - step, step)) best = length;
    }
  }
  return best;
}

}  // namespace

std::int64_t rest_of_number(const std::string& text, const SchemaNode& node) {
  const auto parts = parts_of(text, node);
  if (!parts) return kEndless;
  if (parts->has_exponent) return parts->exponent.empty() ? 1 : 0;
  const std::int64_t behind_point = node.is_integer ? 0 : kBehindPoint;
  const Bounds bounds = bounds_of(node, parts->is_negative, behind_point);
  if (parts->has_point) return rest_of_fraction(*parts, bounds);
  const std::int64_t rest = rest_of_whole(*parts, bounds, behind_point);
  if (!text.empty()) return rest;
  Parts negative;
  negative.is_negative = true;
  return std::min(rest, 1 + rest_of_whole(negative, bounds_of(node, true, behind_point), behind_point));
}

}  // namespace halfbyte::serving
