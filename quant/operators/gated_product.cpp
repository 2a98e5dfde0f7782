// What stands between the products of a gated MLP.
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>

#include <halfbyte/linear.h>

#include "quant/activations.h"
#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/weight_matrix.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators {
namespace {

constexpr const char* kGatedProduct = "gated_product";

struct GateKind {
  std::string_view name;
  quant::Gate gate;
  at::Tensor (*composed)(const at::Tensor&);
};
constexpr GateKind kGateKinds[] = {
    {"silu", quant::Gate::kSilu, [](const at::Tensor& x) { return at::silu(x); }},
    {"gelu", quant::Gate::kGelu, [](const at::Tensor& x) { return at::gelu(x); }},
    {"gelu_tanh", quant::Gate::kGeluTanh, [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
};

const GateKind& gate_kind_of(std::string_view name) {
  std::string known;
  for (const GateKind& each : kGateKinds) {
    if (each.name == name) return each;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  refuse(kGatedProduct, "activation '" + std::string(name) + "' is not one of " + known);
}

at::ScalarType check_gated(const at::Tensor& gate, const at::Tensor& up, OptionalType out_dtype) {
  check_floating(kGatedProduct, "gate", gate);
  check_floating(kGatedProduct, "up", up);
  if (gate.dim() < 1 || gate.sizes() != up.sizes())
    refuse(kGatedProduct, "gate has shape " + c10::str(gate.sizes()) + ", up " + c10::str(up.sizes()));
  check_same_device(kGatedProduct, "up", up, "gate", gate);
  const at::ScalarType type = out_dtype.value_or(gate.scalar_type());
  check_floating(kGatedProduct, "out_dtype", type);
  return type;
}

at::Tensor in_floats(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  if (values.scalar_type() == at::kFloat) return values;
  at::Tensor out = at::empty(values.sizes(), values.options().dtype(at::kFloat));
  quant::convert(bytes_of(values), check_floating(kGatedProduct, "operand", values),
                 static_cast<std::byte*>(out.mutable_data_ptr()), Dtype::kFloat32, values.numel());
  return out;
}

}  // namespace

at::Tensor cpu::gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                              OptionalType out_dtype) {
  const quant::Gate kind = gate_kind_of(activation).gate;
  const at::ScalarType type = check_gated(gate, up, out_dtype);
  const at::Tensor x = in_floats(gate), factors = in_floats(up);
  at::Tensor result = at::empty(gate.sizes(), gate.options().dtype(type));
  const quant::AmongOpenMp among_openmp;
  quant::GateRows rows{};
  rows.gate = kind;
  rows.size = rows.stride = rows.up_stride = gate.size(-1);
  rows.rows = rows.size > 0 ? gate.numel() / rows.size : 0;
  rows.x = x.const_data_ptr<float>();
  rows.up = factors.const_data_ptr<float>();
  rows.output = static_cast<std::byte*>(result.mutable_data_ptr());
  rows.output_dtype = check_floating(kGatedProduct, "out_dtype", type);
  if (rows.rows > 0) quant::gate_rows(rows);
  return result;
}

at::Tensor composite::gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                                    OptionalType out_dtype) {
  const GateKind& kind = gate_kind_of(activation);
  const at::ScalarType type = check_gated(gate, up, out_dtype);
  return at::mul(kind.composed(gate.to(at::kFloat)), up.to(at::kFloat)).to(type).contiguous();
}

// Where a gradient is wanted, the composite, which has one.
at::Tensor autograd::gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                                   OptionalType out_dtype) {
  if (at::GradMode::is_enabled() && (gate.requires_grad() || up.requires_grad()))
    return composite::gated_product(gate, up, activation, out_dtype);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return operators::gated_product(gate, up, activation, out_dtype);
}

}  // namespace halfbyte::operators
