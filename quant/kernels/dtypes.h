// Dtype as the kernels count it. For quant/*.cpp.
#pragma once

#include <stdexcept>
#include <string>

#include <halfbyte/dtype.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {

// Errors: std::invalid_argument for anything but float32, float16 and bfloat16 (a defect of the caller).
inline Float to_float(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return kFloat32;
    case Dtype::kFloat16:
      return kFloat16;
    case Dtype::kBfloat16:
      return kBfloat16;
    default:
      throw std::invalid_argument("quant: " + std::string(name(dtype)) + " is no dtype of weights or activations");
  }
}

constexpr float largest_value(Float type) noexcept {
  constexpr Dtype kDtypes[kFloatCount] = {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16};
  return halfbyte::largest_value(kDtypes[type]);
}

inline constexpr std::size_t kFloatBytes[kFloatCount] = {4, 2, 2};

}  // namespace halfbyte::quant::kernels
