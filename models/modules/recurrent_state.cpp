#include "models/modules/recurrent_state.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "models/modules/pass.h"
#include "models/modules/stored_state.h"

namespace halfbyte::models {
namespace {

// Without the memory of what it is a part of.
at::Tensor alone(const at::Tensor& x) {
  const at::Tensor own = x.detach();
  return own.is_contiguous() && own.nbytes() == own.storage().nbytes() ? own : own.clone(at::MemoryFormat::Contiguous);
}

}  // namespace

RecurrentState::RecurrentState(const std::vector<Shape>& parts, at::Device device) {
  for (const Shape& part : parts)
    parts_.push_back({at::zeros(part, at::TensorOptions().dtype(at::kFloat).device(device)), {}});
}

void RecurrentState::keep(std::size_t part, const at::Tensor& after) { parts_.at(part).next = alone(after); }

void RecurrentState::commit(std::int64_t) {
  for (Part& part : parts_) {
    if (part.next.defined()) part.now = std::move(part.next);
    part.next = at::Tensor();
  }
}

void RecurrentState::cut(std::int64_t length) {
  for (Part& part : parts_) {
    part.next = at::Tensor();
    if (length == 0) part.now = at::zeros_like(part.now);
  }
}

std::int64_t RecurrentState::bytes() const noexcept {
  std::int64_t all = 0;
  for (const Part& part : parts_) all += static_cast<std::int64_t>(part.now.nbytes());
  return all;
}

void RecurrentState::visit_memory(const MemoryVisitor& visit) const {
  for (const Part& part : parts_) visit(part.now.unsafeGetTensorImpl(), static_cast<std::int64_t>(part.now.nbytes()));
}

std::vector<StateTensor> RecurrentState::tensors(std::int64_t) const {
  std::vector<StateTensor> out;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const at::Tensor& now = parts_[i].now;
    out.push_back({"state." + std::to_string(i), now.sizes().vec(), now.scalar_type(), [now] { return now; }});
  }
  return out;
}

void RecurrentState::restore(std::int64_t, const LayerSource& source) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    at::Tensor& now = parts_[i].now;
    now = source.take("state." + std::to_string(i), now.sizes(), now.scalar_type()).to(now.device());
  }
}

at::Tensor states_before(const Pass& pass, std::int64_t layer, std::size_t part) {
  std::vector<at::Tensor> out;
  for (Session* session : pass.sessions) out.push_back(session->state<RecurrentState>(layer).before(part));
  return out.size() == 1 ? out[0].unsqueeze(0) : at::stack(out);
}

void keep_states(const Pass& pass, std::int64_t layer, std::size_t part, const at::Tensor& after) {
  for (std::int64_t row = 0; row < pass.rows; ++row)
    pass.sessions[static_cast<std::size_t>(row)]->state<RecurrentState>(layer).keep(part, after.select(0, row));
}

}  // namespace halfbyte::models
