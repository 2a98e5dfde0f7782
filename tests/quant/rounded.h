// Values in a dtype, and as what they are after rounding to it.
#pragma once

#include <cstddef>
#include <vector>

#include "quant/gradients.h"
#include "tests/quant/random_values.h"

namespace halfbyte::quant::test {

struct Rounded {
  Dtype dtype;
  std::vector<std::byte> data;
  std::vector<float> values;

  Rounded(std::size_t count, unsigned seed, Dtype type)
      : dtype(type), data(to_dtype(normal(count, seed), type)), values(to_floats(data, type)) {}
  ConstValues given() const { return {data.data(), dtype}; }
};

}  // namespace halfbyte::quant::test
