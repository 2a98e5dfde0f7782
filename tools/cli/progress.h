// A progress bar with an estimate of the time left, on stderr, and only when that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace halfbyte::cli {

class Progress {
 public:
  explicit Progress(std::string label, bool is_wanted = true);
  ~Progress();  // erases the bar: what is printed next starts on a clean line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Units: bytes, or tokens; from one thread at a time. Draws at most ten times a second.
  void update(std::uint64_t done, std::uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool is_shown_;
  bool is_drawn_ = false;
  Clock::time_point start_;
  Clock::time_point next_draw_;
};

}  // namespace halfbyte::cli
