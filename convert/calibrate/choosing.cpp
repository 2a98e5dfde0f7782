#include "convert/calibrate/choosing.h"

#include <algorithm>
#include <optional>

#include <halfbyte/linear.h>

#include "convert/calibrate/memory.h"
#include "models/modules/linear.h"

namespace halfbyte::convert::calibrate {
namespace {

// Enough for products of them to run at full speed. One run chooses by the same blocks as several do, so that nothing
// depends on how many there are.
constexpr std::int64_t kBlockRows = 512;

at::Tensor rows_of(const models::Linear& linear, std::int64_t first, std::int64_t count) {
  const at::Tensor weight = static_cast<const models::DenseLinear&>(linear).weight();
  return weight.narrow(0, first, count).to(at::kFloat).contiguous();
}

}  // namespace

Choosing::Choosing(Job job) : job_(std::move(job)), loads_(job_.meeting ? job_.meeting->count() : 1) {}

// The same in all parts.
std::vector<Choosing::Matrix> Choosing::divided(const Part& part) {
  std::vector<Matrix> out;
  for (const models::Linear* linear : part.linears) {
    Matrix matrix{linear, job_.place_of(*linear), {}, {}};
    matrix.size = stack_of(job_.source, planned(matrix)).size;
    const std::int64_t rows = matrix.size.rows, at_once = planned(matrix).is_nested ? rows : kBlockRows;
    for (std::int64_t first = 0; first < rows; first += at_once) {
      const std::int64_t count = std::min(at_once, rows - first);
      const double load = static_cast<double>(count) * static_cast<double>(matrix.size.columns);
      const int owner = part.owner >= 0 ? part.owner : loads_.give_to_least(load);
      if (part.owner >= 0) loads_.add(owner, load);
      matrix.blocks.push_back({first, count, owner, {}});
    }
    out.push_back(std::move(matrix));
  }
  return out;
}

void Choosing::choose(Part& part, std::vector<Matrix>& matrices) const {
  std::vector<at::Tensor> weights;
  std::vector<Block*> blocks;
  std::vector<PackedMatrix> chosen;
  for (Matrix& matrix : matrices) {
    for (Block& block : matrix.blocks) {
      if (block.owner != own()) continue;
      weights.push_back(rows_of(*matrix.linear, block.first, block.count));
      chosen.emplace_back(planned(matrix), MatrixSize{block.count, matrix.size.columns});
      blocks.push_back(&block);
    }
  }
  if (blocks.empty()) {
    part.sums = part.drift = at::Tensor();
    return;
  }
  std::vector<PackedMatrix*> out;
  for (PackedMatrix& each : chosen) out.push_back(&each);
  const Method& method = method_for(job_.method, part.tokens, part.columns);
  Inputs inputs{part.take_moments(), std::move(part.drift), part.tokens};
  method.run(inputs, weights, out, job_.threads);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::span<const std::byte> bytes = chosen[i].bytes();
    blocks[i]->bytes.assign(bytes.begin(), bytes.end());
  }
}

// Each part gives its blocks, in their order.
void Choosing::share(std::vector<Matrix>& matrices) const {
  for (const Matrix& matrix : matrices)
    for (const Block& block : matrix.blocks) job_.meeting->give(block.bytes);
  job_.meeting->meet();
  std::vector<std::uint64_t> read(static_cast<std::size_t>(loads_.count()));
  for (Matrix& matrix : matrices) {
    for (Block& block : matrix.blocks) {
      if (block.owner == own()) continue;
      block.bytes.resize(PackedLayout(planned(matrix), {block.count, matrix.size.columns}).size_bytes);
      std::uint64_t& at = read[static_cast<std::size_t>(block.owner)];
      job_.meeting->read(block.owner, at, block.bytes);
      at += block.bytes.size();
    }
  }
}

void Choosing::give(const Matrix& matrix, const Take& take) const {
  const PlannedTensor& planned = this->planned(matrix);
  if (matrix.blocks.size() == 1)
    return take(*matrix.linear, matrix.place, PackedMatrix(planned, matrix.size, matrix.blocks.front().bytes));
  const PackedLayout layout(planned, matrix.size);
  const auto row_groups = static_cast<std::uint64_t>(matrix.size.columns / planned.group_size);
  std::vector<std::byte> bytes(layout.size_bytes);
  for (const Block& block : matrix.blocks) {
    layout.put(PackedLayout(planned, {block.count, matrix.size.columns}), block.bytes,
               static_cast<std::uint64_t>(block.first) * row_groups, bytes);
  }
  take(*matrix.linear, matrix.place, PackedMatrix(planned, matrix.size, bytes));
}

std::int64_t Choosing::run(Moments& moments, const Take& take) {
  std::int64_t searched = 0;
  std::vector<Matrix> all;
  for (Part& part : moments.parts()) {
    std::vector<Matrix> matrices = divided(part);
    if (&method_for(job_.method, part.tokens, part.columns) != &job_.method) searched += std::ssize(matrices);
    choose(part, matrices);
    std::ranges::move(matrices, std::back_inserter(all));
    if (job_.meeting) continue;
    for (const Matrix& each : all) give(each, take);
    all.clear();
  }
  if (!job_.meeting) return searched;
  share(all);
  for (const Matrix& each : all) give(each, take);
  return searched;
}

}  // namespace halfbyte::convert::calibrate
