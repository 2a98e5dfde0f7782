#include "models/dtype_rules.h"

namespace halfbyte::models {
namespace {

// Under mixed precision: operands of products take the amp dtype; all else stays as recorded.
constexpr bool is_product_operand(Role role) noexcept {
  return role == Role::kLinear || role == Role::kHead || role == Role::kTransposed;
}

}  // namespace

Dtype loaded_dtype(const DtypePolicy& policy, Role role, Dtype recorded, bool is_float32_kept) noexcept {
  if (!is_floating(recorded)) return recorded;
  if (is_float32_kept) return Dtype::kFloat32;
  if (role == Role::kCorrection || role == Role::kDecay) return recorded;
  if (policy.is_amp() && !is_product_operand(role)) return recorded;
  return policy.operand().value_or(recorded);
}

}  // namespace halfbyte::models
