// What a low-rank adapter adds to a product, as one step of the graph.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte {
struct LowBitTensor;
}

namespace halfbyte::training {

// result + (x A^T) B^T * scaling, written over `result`, whose values nothing else may need. Products are in float32;
// of x what is kept for the gradients is itself, in its own dtype, and nothing of the result's size is.
// Shapes: result (.., out_features), float32 or 16 bits; x (.., in_features); a (rank, in_features) and b
// (out_features, rank), float32.
// With a `weight` the result, which must be its product with x in x's dtype, is one step with that: the gradient of x is
// both products', added up before it is rounded.
at::Tensor add_low_rank(const at::Tensor& result, const at::Tensor& x, const at::Tensor& a, const at::Tensor& b,
                        double scaling, const LowBitTensor* weight = nullptr);

}  // namespace halfbyte::training
