// What stands between an MLP's two products.
#pragma once

#include <cstdint>

#include "models/cpu/workspace.h"
#include "quant/activations.h"

namespace halfbyte::models::cpu {

// Whether the kernels have it.
bool has_gate(Activation activation) noexcept;

struct Gated {
  Activation activation;
  std::int64_t rows, size;
  Dtype dtype;  // of the result
};
quant::Gate gate_of(Activation activation) noexcept;
// activation(gate) * up, to `output` or in it. Shapes: gate and up (rows, size); `up` null: gate (rows, 2 * size) has
// it behind.
void gate_into(const Gated& what, const float* gate, const float* up, std::byte* output);
const std::byte* gated(const Gated& what, const float* gate, const float* up, Buffer& output);

}  // namespace halfbyte::models::cpu
