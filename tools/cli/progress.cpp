#include "tools/cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "tools/cli/format.h"
#include "tools/cli/platform.h"

namespace halfbyte::cli {
namespace {

constexpr std::chrono::milliseconds kFirstDraw{300};  // what is over sooner needs no bar
constexpr std::chrono::milliseconds kBetweenDraws{100};
constexpr std::chrono::seconds kWindow{8};
constexpr double kShortestWindow = 0.2;  // seconds
constexpr int kBarColumns = 30;

std::string padded(const std::string& text, std::size_t columns) {
  return std::string(columns - std::min(columns, text.size()), ' ') + text;
}

std::string two_digits(std::int64_t value) {
  return {static_cast<char>('0' + value / 10), static_cast<char>('0' + value % 10)};
}

// "0:07", "12:05", "3:00:00"
std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::min(std::ceil(seconds), 359'999.0));
  const std::string tail = two_digits(whole % 60);
  if (whole < 3600) return std::to_string(whole / 60) + ":" + tail;
  return std::to_string(whole / 3600) + ":" + two_digits(whole / 60 % 60) + ":" + tail;
}

// Of one width, which is the longest that the unit has: "1000 MB/s", "12.3 k tok/s".
std::string rate_text(ProgressUnit unit, std::optional<double> per_second) {
  const std::size_t columns = unit == ProgressUnit::kBytes ? 9 : 12;
  if (!per_second) return padded("", columns);
  const double rate = std::max(*per_second, 0.0);
  const auto whole = static_cast<std::uint64_t>(rate);
  if (unit == ProgressUnit::kBytes) return padded(human_bytes(whole) + "/s", columns);
  return padded((rate < 10 ? fixed(rate, 1) : human_count(whole)) + " tok/s", columns);
}

}  // namespace

std::string progress_line(const std::string& label, ProgressUnit unit, std::uint64_t done, std::uint64_t total,
                          std::optional<double> per_second) {
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int filled = static_cast<int>(share * kBarColumns);
  const double left = static_cast<double>(total - std::min(done, total));
  const std::string time = per_second && *per_second > 0 ? clock_text(left / *per_second) : "-:--";
  return label + " [" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(kBarColumns - filled), '.') + "] " +
         padded(fixed(std::floor(share * 100), 0), 3) + "%  " + rate_text(unit, per_second) + "  " + padded(time, 8) +
         " left";
}

Progress::Progress(std::string label, bool is_wanted, ProgressUnit unit)
    : label_(std::move(label)), unit_(unit), is_shown_(is_wanted && stderr_is_terminal()), start_(Clock::now()) {
  next_draw_ = start_ + kFirstDraw;
}

Progress::~Progress() {
  if (is_drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::uint64_t done, std::uint64_t total) {
  if (!is_shown_ || total == 0) return;
  const Clock::time_point now = Clock::now();
  if (window_.empty()) window_.push_back({now, done});
  if (now < next_draw_) return;
  next_draw_ = now + kBetweenDraws;
  window_.push_back({now, done});
  while (window_.size() > 2 && now - window_.front().time > kWindow) window_.pop_front();
  const double elapsed_s = std::chrono::duration<double>(now - window_.front().time).count();
  std::optional<double> per_second;
  if (elapsed_s >= kShortestWindow && done >= window_.front().done)
    per_second = static_cast<double>(done - window_.front().done) / elapsed_s;
  is_drawn_ = true;
  const auto columns = static_cast<std::size_t>(std::max(terminal_columns() - 1, 1));
  std::fprintf(stderr, "\r%s\033[K", progress_line(label_, unit_, done, total, per_second).substr(0, columns).c_str());
  std::fflush(stderr);
}

}  // namespace halfbyte::cli
