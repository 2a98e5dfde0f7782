// A progress bar with the rate and an estimate of the time left, on stderr, and only when that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

namespace halfbyte::cli {

enum class ProgressUnit { kBytes, kTokens };

class Progress {
 public:
  explicit Progress(std::string label, bool is_wanted = true, ProgressUnit unit = ProgressUnit::kBytes);
  ~Progress();  // erases the bar: what is printed next starts on a clean line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // From one thread at a time. Draws at most ten times a second.
  void update(std::uint64_t done, std::uint64_t total);
  // What stands before the bar from the next update on.
  void relabel(std::string label) { label_ = std::move(label); }

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  ProgressUnit unit_;
  bool is_shown_;
  bool is_drawn_ = false;
  Clock::time_point next_draw_;
  Clock::time_point start_;
  // What was done when, in the last seconds. An estimate follows a change of speed, and what was there before the
  // start (a resumed conversion) does not count as speed.
  struct Sample {
    Clock::time_point time;
    std::uint64_t done;
  };
  std::deque<Sample> window_;
};

// "quantize [#######.......................]  25%   512 MB/s      1:05 left", of the same width whatever the numbers.
// `per_second`: nothing when it is not known yet.
std::string progress_line(const std::string& label, ProgressUnit unit, std::uint64_t done, std::uint64_t total,
                          std::optional<double> per_second);

}  // namespace halfbyte::cli
