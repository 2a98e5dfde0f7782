// The values that a group's codes stand for, once its scale is chosen, and which of them is nearest to a weight: one
// way for every scheme.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <halfbyte/scheme.h>

namespace halfbyte::convert::calibrate {

// A value is (level + base) * scale + offset.
struct Group {
  float scale = 0;
  float inverse = 0;  // 1 / scale; 0 where that is not finite
  float base = 0;     // least integer, or shift of the code book
  float offset = 0;
};

// Of a scheme: 0, 1, 2, ... or a code book.
class Levels {
 public:
  explicit Levels(const Scheme& scheme);

  // The nearest value, and its code as it is stored.
  float nearest(const Group& group, float weight, std::uint8_t& code) const noexcept {
    const float wanted = (weight - group.offset) * group.inverse - group.base;
    const float level = is_codebook_ ? nearest_of_book(wanted, code) : nearest_integer(wanted, code);
    return (level + group.base) * group.scale + group.offset;
  }
  float value(const Group& group, std::uint8_t code) const noexcept {
    const float level = is_codebook_ ? by_code_[code] : static_cast<float>(code);
    return (level + group.base) * group.scale + group.offset;
  }

 private:
  float nearest_integer(float wanted, std::uint8_t& code) const noexcept {
    const float level = std::nearbyint(std::clamp(wanted, 0.0f, last_));
    code = static_cast<std::uint8_t>(level);
    return level;
  }
  float nearest_of_book(float wanted, std::uint8_t& code) const noexcept {
    unsigned at = 0;
    for (unsigned step = 8; step > 0; step /= 2) at += wanted > middles_[at + step - 1] ? step : 0;
    code = codes_[at];
    return ascending_[at];
  }

  bool is_codebook_;
  float last_;  // the largest code of an integer scheme
  Codebook by_code_{}, ascending_{};
  Codebook middles_{};           // between one ascending value and the next; the last is not used
  std::uint8_t codes_[16] = {};  // of the ascending values
};

}  // namespace halfbyte::convert::calibrate
