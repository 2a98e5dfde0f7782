#include "models/modules/recurrent_state.h"

#include <algorithm>

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace halfbyte::models {

RecurrentState::RecurrentState(std::int64_t batch, const std::vector<Shape>& parts, at::Device device)
    : current_(static_cast<std::size_t>(batch), 0) {
  for (const Shape& part : parts) {
    Shape shape = {batch};
    shape.insert(shape.end(), part.begin(), part.end());
    const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
    parts_.push_back({at::zeros(shape, options), at::zeros(shape, options)});
  }
}

at::Tensor RecurrentState::before(std::size_t part, std::int64_t first_row, std::int64_t rows) const {
  const auto first = current_.begin() + first_row;
  if (std::all_of(first, first + rows, [&](std::size_t which) { return which == *first; }))
    return parts_.at(part)[*first].narrow(0, first_row, rows);
  std::vector<at::Tensor> out;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) out.push_back(now(part, row));
  return at::stack(out);
}

void RecurrentState::keep(std::size_t part, std::int64_t first_row, const at::Tensor& after) {
  for (std::int64_t i = 0; i < after.size(0); ++i) {
    const std::int64_t row = first_row + i;
    parts_.at(part)[1 - current(row)].select(0, row).copy_(after.select(0, i).detach());
  }
}

void RecurrentState::commit(std::int64_t row, std::int64_t) {
  std::size_t& which = current_.at(static_cast<std::size_t>(row));
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
