#include "models/training/rounding.h"

#include <algorithm>
#include <bit>

namespace halfbyte::training {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

// Source: the output function of SplitMix64, Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
// generators", with the constants of Stafford's variant 13.
std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A magnitude is cut after something below one step was added to it: the sign needs no thought.
std::uint16_t rounded_by(float value, std::uint32_t chance) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t is_nan = (bits & 0x7fffffff) > 0x7f800000 ? 1 : 0;
  const std::uint32_t sum = is_nan ? bits | 0x400000 : bits + chance;
  return static_cast<std::uint16_t>(sum >> 16);
}

}  // namespace

void round_stochastically(const Chances& chances, std::int64_t first_element, const float* values, std::size_t count,
                          std::uint16_t* rounded) noexcept {
  const std::uint64_t stream =
      mixed(mixed(mixed(chances.seed + kStep) + chances.parameter * kStep) + chances.step * kStep);
  std::uint64_t counter = stream + static_cast<std::uint64_t>(first_element) / 4 * kStep;
  for (std::size_t i = 0; i < count; i += 4) {
    const std::uint64_t random = mixed(counter += kStep);  // 16 bits for each of four
    for (std::size_t j = 0; j < std::min<std::size_t>(4, count - i); ++j)
      rounded[i + j] = rounded_by(values[i + j], static_cast<std::uint32_t>(random >> (16 * j)) & 0xffff);
  }
}

}  // namespace halfbyte::training
