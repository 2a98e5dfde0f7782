#include "loader/files/methods/gptq_bytes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "loader/files/methods/gptq_layout.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kWord = 4;
// Source rows that are gone through together: what becomes of one column is then a cache line.
constexpr std::uint64_t kTile = 16;

std::uint32_t word_at(const std::byte* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

template <class Element>
void transpose(const MatrixView& source, std::uint64_t rows, std::uint64_t first, std::uint64_t count, std::byte* out) {
  for (std::uint64_t begin = 0; begin < rows; begin += kTile) {
    const std::uint64_t end = std::min(begin + kTile, rows);
    std::array<const std::byte*, kTile> from{};
    for (std::uint64_t r = begin; r < end; ++r) from[r - begin] = source.row(r) + first * sizeof(Element);
    for (std::uint64_t n = 0; n < count; ++n) {
      std::byte* to = out + (n * rows + begin) * sizeof(Element);
      for (std::uint64_t r = 0; r < end - begin; ++r)
        std::memcpy(to + r * sizeof(Element), from[r] + n * sizeof(Element), sizeof(Element));
    }
  }
}

}  // namespace

TransposedElements::TransposedElements(StoredMatrix source, std::uint64_t element_bytes)
    : ColumnUnits(source, source.rows * element_bytes, source.row_bytes / element_bytes),
      element_bytes_(element_bytes) {}

void TransposedElements::make(const MatrixView& source, std::uint64_t first, std::uint64_t count,
                              std::byte* out) const {
  const auto run = element_bytes_ == kWord ? transpose<std::uint32_t> : transpose<std::uint16_t>;
  run(source, this->source().rows, first, count, out);
}

TransposedZeroPoints::TransposedZeroPoints(StoredMatrix source, WordMap map, std::uint32_t last_mask)
    : ColumnUnits(source, source.rows * kWord, source.row_bytes / kWord), map_(map), last_mask_(last_mask) {}

void TransposedZeroPoints::make(const MatrixView& source, std::uint64_t first, std::uint64_t count,
                                std::byte* out) const {
  const std::uint64_t groups = this->source().rows, last = this->source().row_bytes / kWord - 1;
  transpose<std::uint32_t>(source, groups, first, count, out);
  for (std::uint64_t c = first; c < first + count; ++c) {
    for (std::uint64_t g = 0; g < groups; ++g, out += kWord) {
      const std::uint32_t word = map_(word_at(out)) & (c == last ? last_mask_ : ~std::uint32_t{0});
      std::memcpy(out, &word, sizeof word);
    }
  }
}

AwqCodes::AwqCodes(StoredMatrix source)
    : ColumnUnits(source, 8 * ((source.rows + 7) / 8) * kWord, source.row_bytes / kWord) {}

void AwqCodes::make(const MatrixView& source, std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::uint64_t inputs = this->source().rows, words = (inputs + 7) / 8;
  for (std::uint64_t w = 0; w < words; ++w) {
    const std::uint64_t here = std::min<std::uint64_t>(8, inputs - w * 8);
    for (std::uint64_t c = 0; c < count; ++c) {
      std::array<std::uint32_t, 8> fields{};
      for (std::uint64_t i = 0; i < here; ++i) fields[i] = word_at(source.row(w * 8 + i) + (first + c) * kWord);
      transpose_fields(fields);
      for (std::size_t i = 0; i < 8; ++i) {
        const auto row = c * 8 + static_cast<std::uint64_t>(kAwqOutputs[i]);
        std::memcpy(out + (row * words + w) * kWord, &fields[i], kWord);
      }
    }
  }
}

}  // namespace halfbyte::files
