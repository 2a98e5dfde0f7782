// How many prompt tokens a pass may read, so that those who wait for it do not wait long. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace halfbyte::serving {

class Pace {
 public:
  // `stall_s`: what a pass between two steps of others may take; `idle_s`: where no others are being answered.
  Pace(double stall_s, double idle_s) : stall_s_(stall_s), idle_s_(idle_s) {}

  // Tokens of the next pass: 16 at least, `most` at most.
  std::int64_t tokens(bool others_wait, std::int64_t most) const noexcept;
  // A pass of so many took so long.
  void took(std::int64_t tokens, double seconds) noexcept;
  double seconds_per_token() const noexcept { return seconds_per_token_; }

 private:
  double stall_s_, idle_s_;
  double seconds_per_token_ = 0;  // 0: not known
};

}  // namespace halfbyte::serving
