// GPTQ and AWQ, whose words and orders loader/files/methods/gptq_layout.h has: input features along the rows.
#include <algorithm>
#include <array>

#include "convert/export/layout.h"
#include "convert/quantization_config.h"
#include "loader/files/methods/gptq_layout.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;

// Parts by index. GPTQ's g_idx says the group of each input feature.
enum : std::size_t { kCodes, kZeroPoints, kScales, kGroupIndex };

struct Sizes {
  std::int64_t rows, columns, groups;
};

Sizes sizes_of(const TensorRecord& record) {
  return {record.shape[0], record.shape[1], record.shape[1] / record.group_size};
}

std::vector<OutputTensor> common_parts(const TensorRecord& result, std::vector<std::int64_t> codes_shape) {
  const auto [rows, columns, groups] = sizes_of(result);
  const std::string module = module_of(result.name);
  return {
      output_tensor(module + files::kGptqCodes, Dtype::kInt32, std::move(codes_shape)),
      output_tensor(module + files::kGptqZeroPoints, Dtype::kInt32, {groups, rows / codes_per_word(*result.scheme)}),
      output_tensor(module + files::kGptqScales, Dtype::kFloat16, {groups, rows})};
}

std::vector<OutputTensor> gptq_parts(const TensorRecord& result) {
  const auto [rows, columns, groups] = sizes_of(result);
  auto out = common_parts(result, {columns / codes_per_word(*result.scheme), rows});
  out.push_back(output_tensor(module_of(result.name) + files::kGptqGroups, Dtype::kInt32, {columns}));
  return out;
}

std::vector<OutputTensor> awq_parts(const TensorRecord& result) {
  return common_parts(result, {result.shape[1], result.shape[0] / 8});
}

// (rows, columns) -> (columns, rows), in squares that stay in the first-level cache.
template <class T>
std::vector<T> transposed(const T* values, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kSquare = 32;
  std::vector<T> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += kSquare) {
      const std::int64_t r1 = std::min(r0 + kSquare, rows), c1 = std::min(c0 + kSquare, columns);
      for (std::int64_t c = c0; c < c1; ++c) {
        for (std::int64_t r = r0; r < r1; ++r) out[static_cast<std::size_t>(c * rows + r)] = values[r * columns + c];
      }
    }
  }
  return out;
}

// Columns [first, first + width) of all rows of a part whose rows have `row_length` values. Shape: values (rows,
// width).
template <class T>
void write_columns(const std::vector<T>& values, std::int64_t first, std::int64_t width, std::int64_t row_length,
                   std::size_t part, const WritePart& write) {
  const std::span<const T> all(values);
  if (width == row_length) return write(part, 0, std::as_bytes(all));
  const auto rows = static_cast<std::int64_t>(values.size()) / width;
  for (std::int64_t r = 0; r < rows; ++r)
    write(part, static_cast<std::uint64_t>((r * row_length + first)) * sizeof(T),
          std::as_bytes(all.subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width))));
}

void write_scales(const TensorRecord& result, const PackedBlock& block, const WritePart& write) {
  const auto [rows, columns, groups] = sizes_of(result);
  const auto scales = transposed(reinterpret_cast<const std::uint16_t*>(block.scales.data()), block.rows, groups);
  write_columns(scales, block.first_row, block.rows, rows, kScales, write);
}

// Words (groups, rows of the block / rows a word): codes of zero, the lowest row lowest.
std::vector<std::uint32_t> zero_points(const TensorRecord& result, const PackedBlock& block) {
  const std::int64_t groups = sizes_of(result).groups, words = block.rows / codes_per_word(*result.scheme);
  if (result.scheme->decode == Decode::kZeroPoint) return transposed(block.zero_points.data(), words, groups);
  const int bits = result.scheme->bits;
  const std::uint32_t middle = files::ones_of_fields(bits) * files::middle_zero_point(bits);
  return std::vector<std::uint32_t>(static_cast<std::size_t>(words * groups), middle);
}

void write_zero_points(const TensorRecord& result, const PackedBlock& block, const std::vector<std::uint32_t>& words,
                       const WritePart& write) {
  const std::int64_t in_word = codes_per_word(*result.scheme);
  write_columns(words, block.first_row / in_word, block.rows / in_word, result.shape[0] / in_word, kZeroPoints, write);
}

// A word of GPTQ's is one of halfbyte's.
void write_gptq(const TensorRecord& result, const ExportFacts& facts, const PackedBlock& block,
                const WritePart& write) {
  const auto [rows, columns, groups] = sizes_of(result);
  const auto codes = transposed(reinterpret_cast<const std::uint32_t*>(block.codes.data()), block.rows,
                                columns / codes_per_word(*result.scheme));
  write_columns(codes, block.first_row, block.rows, rows, kCodes, write);
  write_scales(result, block, write);
  std::vector<std::uint32_t> zeros = zero_points(result, block);
  if (!facts.is_gptq_v2) {  // no field is 0
    for (std::uint32_t& word : zeros) word = files::to_gptq_v1(word, result.scheme->bits);
  }
  write_zero_points(result, block, zeros, write);
  if (block.first_row > 0) return;
  std::vector<std::int32_t> group_index(static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < group_index.size(); ++i)
    group_index[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / result.group_size);
  write(kGroupIndex, 0, std::as_bytes(std::span(group_index)));
}

// (rows, columns / 8) words along the rows -> (columns, rows / 8) words along the columns, in AWQ's order: its rows are
// taken in that order, and then the square is exchanged.
std::vector<std::uint32_t> awq_codes(const std::uint32_t* words, std::int64_t rows, std::int64_t columns) {
  const std::int64_t in_words = columns / 8, out_words = rows / 8;
  std::vector<std::uint32_t> out(static_cast<std::size_t>(columns * out_words));
  constexpr std::int64_t kRun = 16;  // words of a line of the cache, which are written one after another
  for (std::int64_t r0 = 0; r0 < out_words; r0 += kRun) {
    for (std::int64_t c = 0; c < in_words; ++c) {
      for (std::int64_t r = r0; r < std::min(r0 + kRun, out_words); ++r) {
        std::array<std::uint32_t, 8> square;
        for (std::size_t i = 0; i < 8; ++i) square[i] = words[(r * 8 + files::kAwqOutputs[i]) * in_words + c];
        files::transpose_fields(square);
        for (std::size_t i = 0; i < 8; ++i)
          out[static_cast<std::size_t>((c * 8 + static_cast<std::int64_t>(i)) * out_words + r)] = square[i];
      }
    }
  }
  return out;
}

void write_awq(const TensorRecord& result, const ExportFacts&, const PackedBlock& block, const WritePart& write) {
  const auto [rows, columns, groups] = sizes_of(result);
  const auto codes = awq_codes(reinterpret_cast<const std::uint32_t*>(block.codes.data()), block.rows, columns);
  write_columns(codes, block.first_row / 8, block.rows / 8, rows / 8, kCodes, write);
  write_scales(result, block, write);
  std::vector<std::uint32_t> zeros = zero_points(result, block);
  std::ranges::transform(zeros, zeros.begin(), files::to_awq);
  write_zero_points(result, block, zeros, write);
}

}  // namespace

const ExportLayout kGptqLayout{gptq_parts, write_gptq};
const ExportLayout kAwqLayout{awq_parts, write_awq};

}  // namespace halfbyte::convert
