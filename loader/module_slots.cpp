#include "loader/module_slots.h"

#include <optional>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/low_bit_linear.h>

namespace halfbyte {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void append(const std::string& prefix, torch::nn::Module& module, std::vector<Slot>& out) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    out.push_back({join(prefix, item.key()), item.value(), false, nullptr});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) out.push_back({join(prefix, item.key()), item.value(), true, nullptr});
  }
  if (auto* linear = dynamic_cast<LowBitLinear*>(&module)) out.push_back({join(prefix, "weight"), {}, false, linear});
}

}  // namespace

std::vector<std::int64_t> Slot::shape() const {
  if (packed) return {packed->out_features(), packed->in_features()};
  return tensor.sizes().vec();
}

std::vector<Slot> slots_of(torch::nn::Module& module) {
  std::vector<Slot> out;
  module.apply([&](const std::string& prefix, torch::nn::Module& part) { append(prefix, part, out); });
  return out;
}

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return false;
  if (a.is_same(b)) return true;
  return a.has_storage() && b.has_storage() && a.storage().is_alias_of(b.storage()) && a.numel() > 0 &&
         a.storage_offset() == b.storage_offset() && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

bool can_overwrite(const at::Tensor& target) {
  return !target.is_meta() && at::has_internal_overlap(target) != at::MemOverlap::Yes;
}

void overwrite(const at::Tensor& target, const at::Tensor& values) {
  // Made under InferenceMode, a tensor can be written to under it only.
  std::optional<c10::InferenceMode> guard;
  if (target.is_inference()) guard.emplace(true);
  target.copy_(values);
}

at::Tensor make_like(const at::Tensor& target, const at::Tensor& values, at::ScalarType type, at::Device device) {
  at::Tensor out = at::empty_like(target.detach(), target.options().dtype(type).device(device).requires_grad(false));
  out.copy_(values);
  return out;
}

void replace(at::Tensor target, const at::Tensor& data) {
  if (target.is_leaf() && target.grad().defined()) target.mutable_grad() = at::Tensor();
  if (target.is_meta() == data.is_meta()) {
    target.set_data(data);
  } else {
    // What set_data does once it has refused a change from Meta; such a tensor has no gradient accumulator to renew.
    target.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
  }
}

}  // namespace halfbyte
