// The ways to choose codes by what a product is given, a row each.
#pragma once

#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "convert/calibrate/packed_matrix.h"

namespace halfbyte::convert::calibrate {

// What is known of the inputs of some Linears.
struct Inputs {
  at::Tensor moments;  // X^T X, (in_features, in_features), float32; a method may let go of them
  at::Tensor drift;    // (X0 - X)^T X with the original's inputs X0; not defined: X is X0, or not to be compared
  std::int64_t tokens;
};

struct Method {
  std::string_view name;
  // Tokens a column that it needs: with fewer the first row of methods() is taken.
  double tokens_a_column;
  // What the inputs are: those of the original, or those that what was quantised before gives.
  bool follows_quantized;
  // What is left of a loss that was measured of each product by itself: those behind it may make up for some of it.
  double loss_left;
  // Fills `out`, one for each of `weights`, which share their input. Shapes: weights (rows, in_features), float32,
  // contiguous.
  void (*run)(Inputs& inputs, std::span<const at::Tensor> weights, std::span<PackedMatrix* const> out, int threads);
};

std::span<const Method> methods() noexcept;
const Method* find_method(std::string_view name) noexcept;  // "auto" too; null: no such method
// `wanted` where `tokens` are enough for so many columns, else the first row of methods().
const Method& method_for(const Method& wanted, std::int64_t tokens, std::int64_t columns) noexcept;

}  // namespace halfbyte::convert::calibrate
