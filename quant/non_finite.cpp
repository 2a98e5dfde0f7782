#include "quant/non_finite.h"

#include <algorithm>
#include <exception>

#include "quant/kernels/dtypes.h"
#include "quant/threads.h"

namespace halfbyte::quant {
namespace {

// For a noexcept function: a bad HALFBYTE_ISA is reported by the first call that may throw.
const kernels::Table& kernels_or_ref() noexcept try { return kernels::kernels(); } catch (const std::exception&) {
  return kernels::kRef;
}

}  // namespace

std::optional<NonFinite> scan_rows(const kernels::Table& table, const FloatRows& source, std::int64_t begin,
                                   std::int64_t end) {
  const kernels::Float dtype = kernels::to_float(source.dtype);
  const auto columns = static_cast<std::size_t>(source.in_features);
  for (std::int64_t row = begin; row < end; ++row) {
    const kernels::Byte* values = reinterpret_cast<const kernels::Byte*>(source.data) +
                                  static_cast<std::size_t>(row) * columns * kernels::kFloatBytes[dtype];
    const std::size_t column = table.first_non_finite(dtype, values, columns);
    if (column == columns) continue;
    float value;
    table.load(dtype, values + column * kernels::kFloatBytes[dtype], 1, &value);
    return NonFinite{row, static_cast<std::int64_t>(column), value};
  }
  return std::nullopt;
}

int thread_count(int wanted, std::int64_t blocks) {
  const int threads = wanted > 0 ? wanted : max_threads();
  return static_cast<int>(std::clamp<std::int64_t>(blocks, 1, threads));
}

std::optional<NonFinite> find_non_finite(const FloatRows& source, int threads) noexcept {
  constexpr std::int64_t kBlockBytes = 1 << 20;
  if (source.rows == 0 || source.in_features == 0) return std::nullopt;
  const kernels::Table& table = kernels_or_ref();
  const std::int64_t row_bytes = source.in_features * size_bytes(source.dtype);
  const std::int64_t block_rows = std::max<std::int64_t>(1, kBlockBytes / row_bytes);
  const std::int64_t blocks = (source.rows + block_rows - 1) / block_rows;
  FirstFinding finding;
#pragma omp parallel for num_threads(thread_count(threads, blocks)) schedule(dynamic)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * block_rows, end = std::min(begin + block_rows, source.rows);
    if (!finding.is_before(begin)) finding.report(scan_rows(table, source, begin, end));
  }
  return finding.get();
}

}  // namespace halfbyte::quant
