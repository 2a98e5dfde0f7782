// The products that share an input, of all tokens of a pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "models/cpu/views.h"
#include "models/cpu/workspace.h"

namespace halfbyte::models::cpu {

// What a pass multiplies after the next products: threads that wait fetch its beginning, where tokens are few. Null or
// empty: it is not known, and nothing is fetched.
void fetch_next(const ProductsView* next, std::int64_t tokens);
void fetch_next(std::span<const quant::Product> next, std::int64_t tokens);

// Asks the watch between slices of tokens. `reordered`: for the input in the order of a weight's columns. Shapes: input
// (tokens, in_features), in the view's operand dtype; outputs (tokens, out_features) each, float32.
void multiply(ProductsView& view, const std::byte* input, std::int64_t tokens, Buffer& reordered, Buffer* outputs);

// Gate and up, through the activation: what `mlp.down` multiplies, in a buffer of the workspace. Asks the watch as
// multiply does. Many tokens at once, so that what is between is never in memory as a whole. Shapes: input (tokens,
// in_features), in the view's operand dtype; result (tokens, columns of gate), in that of mlp.down.
const std::byte* multiply_gated(MlpView& mlp, const std::byte* input, std::int64_t tokens, Workspace& workspace);

// Products of experts, with rows and inputs of their own; asks the watch between them, and between slices of a large
// one.
void multiply_watched(std::span<const quant::Product> products);

}  // namespace halfbyte::models::cpu
