// float32 to bfloat16 by chance, so that updates too small for a bfloat16 are not lost on average.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfbyte::training {

// Which chances those of one update of one parameter are; its elements are counted from 0 in the parameter.
struct Chances {
  std::uint64_t seed, parameter, step;
};

// Each to one of the two bfloat16 beside it, the nearer the likelier, in proportion; a bfloat16 stays itself.
// A NaN stays NaN. first_element: of values[0], a multiple of 4.
void round_stochastically(const Chances& chances, std::int64_t first_element, const float* values, std::size_t count,
                          std::uint16_t* rounded) noexcept;

}  // namespace halfbyte::training
