#include "models/cpu/module_experts.h"

#include "models/cpu/gates.h"
#include "models/cpu/module_views.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"

namespace halfbyte::models::cpu {
namespace {

bool products_of(const Mlp& mlp, ExpertProducts& out) {
  out.count = mlp.inputs().size();
  if (out.count > out.inputs.size() || !has_gate(mlp.activation())) return false;
  for (std::size_t i = 0; i < out.count; ++i) {
    const auto product = product_of(*mlp.inputs()[i]);
    if (!product) return false;
    out.inputs[i] = *product;
  }
  const auto down = product_of(mlp.down());
  if (down) out.down = *down;
  return down.has_value();
}

}  // namespace

bool has_form(const MixtureOfExperts& experts) {
  return !experts.has_router_norm() &&
         has_form(experts.config(), experts.experts().front()->activation());  // the others have it too
}

bool ModuleExperts::expert(std::size_t index, ExpertProducts& out) const {
  return products_of(*experts_.experts()[index], out);
}

std::optional<quant::Product> ModuleExperts::router() const { return product_of(experts_.router(), Dtype::kFloat32); }

std::optional<FusedValues> ModuleExperts::correction() const {
  const at::Tensor& bias = experts_.correction();
  if (!bias.defined()) return FusedValues{};
  if (!operators::is_plain(bias)) return std::nullopt;
  return FusedValues{operators::bytes_of(bias), *from_torch(bias.scalar_type()), bias.numel()};
}

bool ModuleExperts::shared(ExpertProducts& out) const { return products_of(*experts_.shared(), out); }

std::optional<quant::Product> ModuleExperts::shared_router() const {
  return product_of(*experts_.shared_router(), Dtype::kFloat32);
}

}  // namespace halfbyte::models::cpu
