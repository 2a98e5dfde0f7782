// What a layer keeps of a sequence when it does not grow with the tokens: tensors that each pass replaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/modules/stored_state.h"
#include "models/sessions/layer_state.h"

namespace halfbyte::models {

struct Pass;

// Every part is float32, and zero at first. Its tensors are never written to, so that forks share them.
class RecurrentState final : public LayerState, public StoredState {
 public:
  using Shape = std::vector<std::int64_t>;

  // `parts`: the shape of each.
  RecurrentState(const std::vector<Shape>& parts, at::Device device);

  const at::Tensor& before(std::size_t part) const { return parts_.at(part).now; }
  // What before() is once the pass is committed.
  void keep(std::size_t part, const at::Tensor& after);

  std::unique_ptr<LayerState> fork() const override { return std::make_unique<RecurrentState>(*this); }
  void commit(std::int64_t length) override;
  std::int64_t least(std::int64_t length) const noexcept override { return length; }
  void cut(std::int64_t length) override;
  std::int64_t bytes() const noexcept override;
  std::int64_t bytes_for(std::int64_t) const noexcept override { return bytes(); }
  void visit_memory(const MemoryVisitor& visit) const override;
  std::vector<StateTensor> tensors(std::int64_t length) const override;
  void restore(std::int64_t length, const LayerSource& source) override;

 private:
  struct Part {
    at::Tensor now, next;  // next is undefined: no pass has left any
  };
  std::vector<Part> parts_;
};

// Of all rows of a pass. Shape: (rows, ...).
at::Tensor states_before(const Pass& pass, std::int64_t layer, std::size_t part);
void keep_states(const Pass& pass, std::int64_t layer, std::size_t part, const at::Tensor& after);

}  // namespace halfbyte::models
