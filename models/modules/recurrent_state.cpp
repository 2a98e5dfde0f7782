#include "models/modules/recurrent_state.h"

#include <algorithm>

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace halfbyte::models {

RecurrentState::RecurrentState(std::int64_t batch, const std::vector<Shape>& parts, at::Device device)
    : current_(static_cast<std::size_t>(batch), 0) {
  for (const Shape& part : parts) {
    Shape shape = {2, batch};
    shape.insert(shape.end(), part.begin(), part.end());
    parts_.push_back(at::zeros(shape, at::TensorOptions().dtype(at::kFloat).device(device)));
  }
}

at::Tensor RecurrentState::before(std::size_t part, std::int64_t first_row, std::int64_t rows) const {
  const auto first = current_.begin() + first_row;
  if (std::all_of(first, first + rows, [&](std::int64_t which) { return which == *first; }))
    return parts_.at(part).select(0, *first).narrow(0, first_row, rows);
  std::vector<at::Tensor> out;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) out.push_back(now(part, row));
  return at::stack(out);
}

void RecurrentState::keep(std::size_t part, std::int64_t first_row, const at::Tensor& after) {
  for (std::int64_t i = 0; i < after.size(0); ++i) {
    const std::int64_t row = first_row + i;
    parts_.at(part).select(0, 1 - current(row)).select(0, row).copy_(after.select(0, i));
  }
}

void RecurrentState::commit(std::int64_t row, std::int64_t) {
  std::int64_t& which = current_.at(static_cast<std::size_t>(row));
  which = 1 - which;
}

void RecurrentState::reset(std::int64_t row) {
  for (std::size_t part = 0; part < parts_.size(); ++part) now(part, row).zero_();
}

std::vector<at::Tensor> RecurrentState::save(std::int64_t row) const {
  std::vector<at::Tensor> out;
  for (std::size_t part = 0; part < parts_.size(); ++part) out.push_back(now(part, row).clone());
  return out;
}

void RecurrentState::restore(std::int64_t row, const std::vector<at::Tensor>& saved) {
  for (std::size_t part = 0; part < parts_.size(); ++part) now(part, row).copy_(saved.at(part));
}

}  // namespace halfbyte::models
