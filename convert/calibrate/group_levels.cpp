#include "convert/calibrate/group_levels.h"

#include <array>

namespace halfbyte::convert::calibrate {

Levels::Levels(const Scheme& scheme)
    : is_codebook_(scheme.codebook != nullptr), last_(static_cast<float>((1 << scheme.bits) - 1)) {
  if (!is_codebook_) return;
  by_code_ = *scheme.codebook;
  std::array<std::uint8_t, 16> order{};
  for (std::uint8_t i = 0; i < 16; ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::uint8_t code) { return by_code_[code]; });
  for (std::size_t i = 0; i < 16; ++i) {
    codes_[i] = order[i];
    ascending_[i] = by_code_[order[i]];
  }
  for (std::size_t i = 0; i < 15; ++i) middles_[i] = (ascending_[i] + ascending_[i + 1]) / 2;
}

}  // namespace halfbyte::convert::calibrate
