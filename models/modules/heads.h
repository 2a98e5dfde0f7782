// What attentions of several kinds do with their heads: turning them, and keeping them.
#pragma once

#include <functional>

#include "models/modules/compute.h"
#include "models/modules/pass.h"

namespace halfbyte::models {

// The keys or values of a range, of every row. `of_row`: the first `count` of them; a row that has fewer than another
// is filled up with zeros. Shapes: (heads, count, size) -> (rows, heads, range.count, size).
at::Tensor gathered(const Pass& pass, const KeyRange& range,
                    const std::function<at::Tensor(Session& session, std::int64_t count)>& of_row);

// By the rope of this index; kNoRope: as it is. Shape: (rows, tokens, heads, size), kept.
at::Tensor turn(const at::Tensor& x, const Pass& pass, std::size_t rope, const Compute& compute, bool is_interleaved);

// The dtype to multiply heads in. On a CPU without AVX512-FP16, LibTorch's float16 attention took twice as long as its
// float32 one (2.13, Zen 5), so float16 is widened, which also adds precision.
at::ScalarType product_dtype(at::Device device, at::ScalarType operand);

}  // namespace halfbyte::models
