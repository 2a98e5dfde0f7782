// halfbyte's dtypes and LibTorch's, both ways. For sources that include LibTorch.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include <halfbyte/dtype.h>

namespace halfbyte {

// Nothing for dtypes that LibTorch has no tensors of.
std::optional<at::ScalarType> to_torch(Dtype dtype) noexcept;
std::optional<Dtype> from_torch(at::ScalarType type) noexcept;

// float32, float16 and bfloat16, which always map. Precondition: is_weight_dtype(dtype).
at::ScalarType weight_scalar_type(Dtype dtype) noexcept;

}  // namespace halfbyte
