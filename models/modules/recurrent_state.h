// What a layer keeps of a row when it does not grow with the tokens: tensors that each pass replaces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/modules/layer_state.h"

namespace halfbyte::models {

// Every part is held twice a row: as it is, and as it will be once the pass is committed. Both are float32, and zero
// at first.
class RecurrentState final : public LayerState {
 public:
  using Shape = std::vector<std::int64_t>;

  // `parts`: the shape of each, of one row.
  RecurrentState(std::int64_t batch, const std::vector<Shape>& parts, at::Device device);

  // Shape: (rows, ...), of its own memory where the rows do not lie together.
  at::Tensor before(std::size_t part, std::int64_t first_row, std::int64_t rows) const;
  // What before() is once the pass is committed. Shape: as before()'s.
  void keep(std::size_t part, std::int64_t first_row, const at::Tensor& after);

  bool can_rewind() const noexcept override { return false; }
  void commit(std::int64_t row, std::int64_t tokens) override;
  void reset(std::int64_t row) override;
  std::vector<at::Tensor> save(std::int64_t row) const override;
  void restore(std::int64_t row, const std::vector<at::Tensor>& saved) override;
  void grow(std::int64_t, std::int64_t) override {}

 private:
  std::size_t current(std::int64_t row) const { return current_.at(static_cast<std::size_t>(row)); }
  // Shape: of one row.
  at::Tensor now(std::size_t part, std::int64_t row) const { return parts_[part][current(row)].select(0, row); }

  // (batch, ...) each. Two tensors, since autograd would take writing to a half of one for writing to both.
  std::vector<std::array<at::Tensor, 2>> parts_;
  std::vector<std::size_t> current_;  // which of the two is before(), a row
};

}  // namespace halfbyte::models
