#include "quant/norm_rows.h"

#include <algorithm>
#include <vector>

#include "quant/kernels/activation_kernels.h"
#include "quant/row_values.h"
#include "quant/thread_pool.h"

namespace halfbyte::quant {
namespace {

// Values below this many are not worth waking other threads.
constexpr std::int64_t kParallelValues = 8 << 10;
// Values of a piece at least, and pieces at most: each has sums of its own.
constexpr std::int64_t kPieceValues = 32 << 10, kMostPieces = 64;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

// Rows in pieces that depend on their number and size alone.
struct Pieces {
  std::int64_t rows, size;
  std::int64_t step = std::max(
      {std::int64_t{1}, kPieceValues / std::max<std::int64_t>(1, size), (rows + kMostPieces - 1) / kMostPieces});

  std::int64_t count() const { return (rows + step - 1) / step; }
  // work(piece, row) of each piece in order of its rows.
  template <class Work>
  void for_each(const Work& work) const {
    for_each_piece(count(), rows * size > kParallelValues, [&](std::int64_t piece) {
      for (std::int64_t row = piece * step; row < std::min(rows, (piece + 1) * step); ++row) work(piece, row);
    });
  }
};

std::vector<float> weights_of(const kernels::Table& table, const NormWeight& weight, std::int64_t size) {
  std::vector<float> out(to_size(size), 1.0f);
  if (!weight.values.data) return out;
  const float* values = loaded_values(table, weight.values, 0, size, out.data());
  std::transform(values, values + size, out.begin(), [&](float value) { return value + weight.offset; });
  return out;
}

// A thread's own.
float* buffer_of(std::int64_t count) {
  thread_local std::vector<float> mine;
  if (mine.size() < to_size(count)) mine.resize(to_size(count));
  return mine.data();
}

float factor_of(const kernels::ActivationTable& kernels, const float* x, std::int64_t size, float epsilon) {
  return 1.0f / __builtin_sqrtf(kernels.sum_of_squares(x, to_size(size)) / static_cast<float>(size) + epsilon);
}

void round_to(const kernels::Table& table, Dtype dtype, std::int64_t size, float* values, float* buffer) {
  const Values rounded{reinterpret_cast<std::byte*>(buffer), dtype};
  store_values(table, values, size, rounded, 0);
  loaded_values(table, {rounded.data, dtype}, 0, size, values);
}

}  // namespace

void norm_rows(const NormRows& a) {
  const kernels::Table& table = kernels::kernels();
  const kernels::ActivationTable& kernels = *table.activations;
  const std::size_t size = to_size(a.size);
  const std::vector<float> weights = weights_of(table, a.weight, a.size);
  const bool is_rounded = a.normal != Dtype::kFloat32;
  const std::vector<float> ones(is_rounded ? size : 0, 1.0f);
  Pieces{a.rows, a.size}.for_each([&](std::int64_t, std::int64_t row) {
    float* const buffer = buffer_of(2 * a.size);
    const std::int64_t at = row * a.size;
    const float* x = loaded_values(table, a.x, at, a.size, buffer);
    float* const out = place_of_values(a.output, at, buffer + a.size);
    const float factor = factor_of(kernels, x, a.size, a.epsilon);
    kernels.scale(x, factor, is_rounded ? ones.data() : weights.data(), 0.0f, size, out);
    if (is_rounded) {
      round_to(table, a.normal, a.size, out, buffer);
      kernels.scale(out, 1.0f, weights.data(), 0.0f, size, out);
    }
    store_values(table, out, a.size, a.output, at);
    if (a.factors) a.factors[row] = factor;
  });
}

void norm_gradients(const NormGradients& a) {
  const kernels::Table& table = kernels::kernels();
  const kernels::ActivationTable& kernels = *table.activations;
  const std::size_t size = to_size(a.size);
  const std::vector<float> weights = weights_of(table, a.weight, a.size);
  const Pieces pieces{a.rows, a.size};
  std::vector<float> sums(a.of_weight ? to_size(pieces.count()) * size : 0);
  pieces.for_each([&](std::int64_t piece, std::int64_t row) {
    float* const buffer = buffer_of(3 * a.size);
    const std::int64_t at = row * a.size;
    const float* x = loaded_values(table, a.x, at, a.size, buffer);
    const float* gradient = loaded_values(table, a.of_output, at, a.size, buffer + a.size);
    float* const out = place_of_values(a.of_x, at, buffer + 2 * a.size);
    kernels.norm_gradient(x, gradient, weights.data(), a.factors[row], size, out);
    store_values(table, out, a.size, a.of_x, at);
    if (a.of_weight) kernels.add_products(x, a.factors[row], gradient, size, sums.data() + to_size(piece) * size);
  });
  if (!a.of_weight) return;
  std::fill_n(a.of_weight, size, 0.0f);
  for (std::int64_t piece = 0; piece < pieces.count(); ++piece)
    kernels.add(a.of_weight, sums.data() + to_size(piece) * size, size, a.of_weight);
}

}  // namespace halfbyte::quant
