#include "models/serving/pace.h"

#include <algorithm>

namespace halfbyte::serving {
namespace {

// Fewer tokens than these cost nearly as much; more than kFirst nobody asks for before the speed is known.
constexpr std::int64_t kLeast = 16, kFirst = 32;
// What the last pass says counts this much beside those before it: attention takes longer as a prompt grows.
constexpr double kShare = 0.4;

}  // namespace

std::int64_t Pace::tokens(bool others_wait, std::int64_t most) const noexcept {
  if (seconds_per_token_ == 0) return std::min(most, kFirst);
  const double fit = (others_wait ? stall_s_ : idle_s_) / seconds_per_token_;
  const auto whole = static_cast<std::int64_t>(std::min(fit, static_cast<double>(most))) / kLeast * kLeast;
  return std::clamp(whole, std::min(kLeast, most), most);
}

void Pace::took(std::int64_t tokens, double seconds) noexcept {
  if (tokens <= 0) return;
  const double now = seconds / static_cast<double>(tokens);
  seconds_per_token_ = seconds_per_token_ == 0 ? now : seconds_per_token_ * (1 - kShare) + now * kShare;
}

}  // namespace halfbyte::serving
