// The products that share an input, of all tokens of a pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "models/cpu/views.h"
#include "models/cpu/workspace.h"

namespace halfbyte::models::cpu {

// Asks the watch between slices of tokens. `reordered`: for the input in the order of a weight's columns. Shapes: input
// (tokens, in_features), in the view's operand dtype; outputs (tokens, out_features) each, float32.
void multiply(ProductsView& view, const std::byte* input, std::int64_t tokens, Buffer& reordered, Buffer* outputs);

// Products of experts, with rows and inputs of their own; asks the watch between them, and between slices of a large
// one.
void multiply_watched(std::span<const quant::Product> products);

}  // namespace halfbyte::models::cpu
