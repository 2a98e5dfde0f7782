#include "convert/calibrate/memory.h"

#include <algorithm>
#include <limits>
#include <map>

#include "convert/calibrate/expert_path.h"
#include "convert/calibrate/layer_pass.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/printable.h"

namespace halfbyte::convert::calibrate {
namespace {

constexpr std::uint64_t kFloat = sizeof(float);
// What LibTorch, the products' own buffers and the allocator's gaps take beyond what is in memory before the first
// layer: measured.
constexpr std::uint64_t kFixedBytes = std::uint64_t{288} << 20;

// What one layer takes, the most of each.
struct Needs {
  std::uint64_t weights = 0;      // as they are multiplied
  std::uint64_t stored = 0;       // its largest tensor, while it is read
  std::uint64_t moments = 0;      // the largest sums, with the drift
  std::uint64_t choosing = 0;     // moments and their factor, and what is made of weights of that width
  std::uint64_t beside = 0;       // the same without the moments: others may have been gathered with them
  std::uint64_t activations = 0;  // between the products, for a batch

  std::uint64_t without_moments() const noexcept { return kFixedBytes + weights; }
  std::uint64_t least() const noexcept {
    return without_moments() + std::max({stored, moments + activations, choosing});
  }
};

// Of the products whose input has one width.
struct Width {
  // Their weights in float32 and the result: those that share their input are chosen together; of experts two at most.
  std::uint64_t all = 0, expert = 0;
  std::uint64_t most = 0;  // what the largest takes beside: what is left to choose, codes
};

Needs needs_of(const files::Checkpoint& source, const Plan& plan, const LayersInMemory& layers,
               const std::string& prefix) {
  Needs out;
  const std::uint64_t copies = layers.is_paired ? 2 : 1;
  std::map<std::uint64_t, Width> widths;
  for (const PlannedTensor& planned : plan.tensors) {
    const files::StoredTensor& tensor = source.tensors[planned.source];
    if (!tensor.name.starts_with(prefix)) continue;
    const std::uint64_t values = tensor.size_bytes * 8 / static_cast<std::uint64_t>(info(tensor.dtype).bits);
    out.weights += copies * values * layers.weight_bytes;
    out.stored = std::max(out.stored, tensor.size_bytes);
    if (!planned.scheme) continue;
    const MatrixSize size = stack_of(source, planned).size;
    const auto rows = static_cast<std::uint64_t>(size.rows), columns = static_cast<std::uint64_t>(size.columns);
    const std::uint64_t square = columns * columns * kFloat;
    Width& width = widths[columns];
    const std::uint64_t chosen = copies * rows * columns * kFloat + PackedLayout(planned, size).size_bytes;
    const bool is_expert = tensor.shape.size() == 3 || expert_path(tensor.name.substr(0, tensor.name.rfind('.')));
    is_expert ? width.expert = std::max(width.expert, 2 * chosen) : width.all += chosen;
    width.most = std::max(width.most, rows * columns * (kFloat + 1));
    out.moments = std::max(out.moments, copies * square);
    const std::uint64_t beside = square + std::max(width.all, width.expert) + width.most;
    out.beside = std::max(out.beside, beside);
    out.choosing = std::max(out.choosing, square + beside);
  }
  return out;
}

void take_most(Needs& most, const Needs& one) {
  for (auto member :
       {&Needs::weights, &Needs::stored, &Needs::moments, &Needs::choosing, &Needs::beside, &Needs::activations})
    most.*member = std::max(most.*member, one.*member);
}

// Of one batch: the stream and its norms, queries, keys and values, and what the MLP makes.
std::uint64_t activations_of(const models::ModelConfig& config, StatesShape states) {
  const auto tokens = static_cast<std::uint64_t>(std::max(LayerPass::kTokens, states.tokens));
  const auto widths = 6 * config.hidden_size + 3 * config.query_size() + 3 * config.intermediate_size;
  return tokens * static_cast<std::uint64_t>(widths) * kFloat;
}

}  // namespace

MatrixStack stack_of(const files::Checkpoint& source, const PlannedTensor& planned) {
  const std::vector<std::int64_t>& shape = source.tensors[planned.source].shape;
  const std::int64_t count = shape.size() == 3 ? shape.front() : 1;
  const auto [rows, columns] = files::matrix_shape(shape);
  return {static_cast<std::uint64_t>(count), {rows / count, columns}};
}

CalibrationMemory plan_memory(const files::Checkpoint& source, const Plan& plan, const models::ModelConfig& config,
                              const LayersInMemory& layers, std::optional<std::uint64_t> limit) {
  if (!limit) return {std::numeric_limits<std::uint64_t>::max()};
  Needs most;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    take_most(most,
              needs_of(source, plan, layers, std::string(config.naming->layers) + "." + std::to_string(layer) + "."));
  most.activations = activations_of(config, layers.states);
  const std::uint64_t used = files::current_rss_bytes(), needed = used + most.least();
  if (needed <= *limit) {
    const std::uint64_t room = *limit - used - most.without_moments(), taken = std::max(most.activations, most.beside);
    return {room > taken ? room - taken : 0};  // one product's are gathered in any case, for which there is room
  }
  throw Error(
      ErrorCode::kNoResources,
      "the memory limit is " + files::printable_bytes(*limit) + ", calibration of this model needs " +
          files::printable_bytes(needed) + ": " + (layers.is_paired ? "two layers' weights (" : "a layer's weights (") +
          files::printable_bytes(most.weights) + "), the second moments of its widest input and their factor (" +
          files::printable_bytes((layers.is_paired ? 1 : 2) * most.moments) + ") and what LibTorch takes; give " +
          Option::kMemoryLimit + " " + std::to_string((needed + 999'999) / 1'000'000) + "MB" +
          (layers.is_paired ? ", or take the method gptq, which needs less" : ""));
}

}  // namespace halfbyte::convert::calibrate
