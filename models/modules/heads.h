// What attentions of several kinds do with their heads: turning them, and keeping them.
#pragma once

#include "models/modules/compute.h"
#include "models/modules/pass.h"

namespace halfbyte::models {

// Puts what is new, in the cache's dtype, where the pass's tokens stand. Shapes: cache (batch, heads, capacity, size),
// fresh (rows, tokens, heads, size).
void store(const at::Tensor& cache, const at::Tensor& fresh, const Pass& pass);

// By the rope of this index; kNoRope: as it is. Shape: (rows, tokens, heads, size), kept.
at::Tensor turn(const at::Tensor& x, const Pass& pass, std::size_t rope, const Compute& compute, bool is_interleaved);

// The dtype to multiply heads in. On a CPU without AVX512-FP16, LibTorch's float16 attention took twice as long as its
// float32 one (2.13, Zen 5), so float16 is widened, which also adds precision.
at::ScalarType product_dtype(at::Device device, at::ScalarType operand);

}  // namespace halfbyte::models
