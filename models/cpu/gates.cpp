#include "models/cpu/gates.h"

#include "quant/activations.h"

namespace halfbyte::models::cpu {
namespace {

constexpr quant::Gate kGates[] = {quant::Gate::kSilu, quant::Gate::kGelu, quant::Gate::kGeluTanh};  // by Activation

}  // namespace

bool has_gate(Activation activation) noexcept { return static_cast<std::size_t>(activation) < std::size(kGates); }

quant::Gate gate_of(Activation activation) noexcept { return kGates[static_cast<std::size_t>(activation)]; }

void gate_into(const Gated& what, const float* gate, const float* up, std::byte* output) {
  quant::GateRows a{};
  a.gate = gate_of(what.activation);
  a.rows = what.rows;
  a.size = what.size;
  a.stride = a.up_stride = up ? what.size : 2 * what.size;
  a.x = gate;
  a.up = up ? up : gate + what.size;
  a.output_dtype = what.dtype;
  a.output = output;
  quant::gate_rows(a);
}

const std::byte* gated(const Gated& what, const float* gate, const float* up, Buffer& output) {
  std::byte* const out = output.at_least(static_cast<std::size_t>(what.rows * what.size * size_bytes(what.dtype)));
  gate_into(what, gate, up, out);
  return out;
}

}  // namespace halfbyte::models::cpu
