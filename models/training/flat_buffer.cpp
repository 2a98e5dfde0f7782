#include <functional>
#include <numeric>

#include <ATen/ops/zeros.h>

#include "models/training/update_rule.h"

namespace halfbyte::training {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements that a view begins at a multiple of

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

FlatBuffer::FlatBuffer(const std::vector<std::vector<std::int64_t>>& shapes, at::ScalarType dtype) {
  std::vector<std::int64_t> begins;
  std::int64_t total = 0;
  for (const auto& shape : shapes) {
    begins.push_back(total);
    total += (elements_of(shape) + kAlignment - 1) / kAlignment * kAlignment;
  }
  const at::Tensor buffer = at::zeros({total}, dtype);
  for (std::size_t i = 0; i < shapes.size(); ++i)
    views_.push_back(buffer.narrow(0, begins[i], elements_of(shapes[i])).view(shapes[i]));
}

at::Tensor FlatBuffer::of(const Piece& piece) const {
  const at::Tensor& whole = views_[piece.parameter];
  if (whole.sizes() == piece.value.sizes()) return whole;
  return whole.view(-1).narrow(0, piece.offset, piece.value.numel());
}

void FlatBuffer::append_to(std::vector<NamedTensor>& state, const std::vector<NamedTensor>& parameters,
                           std::string_view what) const {
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (views_[i].numel() != 0) state.push_back({parameters[i].name + "." + std::string(what), views_[i]});
  }
}

std::vector<std::vector<std::int64_t>> shapes_of(const std::vector<NamedTensor>& parameters) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const NamedTensor& one : parameters) shapes.push_back(one.tensor.sizes().vec());
  return shapes;
}

}  // namespace halfbyte::training
