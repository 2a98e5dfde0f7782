// Products of which one goes through a gate and multiplies the other.
#pragma once

#include <span>

#include <halfbyte/linear.h>

#include "quant/activations.h"
#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

// output = gate(x) * up, where x and up are the two products of one input, in this order; or the two halves of one
// product's columns, of which there is an even number. Rows and input are the products'; their outputs, which are not
// looked at, count as float32. Shape of output: (rows, columns of x).
struct GatedLinear {
  std::span<const Product> products;
  Gate gate;
  std::byte* output;
  Dtype output_dtype;
};

// The same bits as the products and gate_rows, of many rows without what is between them going to memory. False where
// that is not possible, or no faster: then nothing is computed.
bool linear_gated(const GatedLinear& arguments);
bool linear_gated(const kernels::Table& table, const GatedLinear& arguments);
// What linear_gated will say; their input may be missing yet, if it is one.
bool is_gated_at_once(std::span<const Product> products);

}  // namespace halfbyte::quant
