// Packed or dense weight rows to float values.
#include "quant/weight_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

#include "quant/thread_pool.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {
namespace {

constexpr std::size_t kUnpackedRows = 16;  // that a thread takes at a time

kernels::Dot dot_for(const WeightMatrix& weight) {
  if (!weight.scheme) {
    constexpr kernels::Dot kDense[] = {kernels::kDotFloat32, kernels::kDotFloat16, kernels::kDotBfloat16};
    return kDense[kernels::to_float(weight.dense_dtype)];
  }
  return weight.scheme->bits == 4 ? kernels::kDotInt4 : kernels::kDotInt8;
}

struct Operand {
  Part part;
  const std::byte* WeightMatrix::*member;
};
constexpr Operand kOperands[] = {{Part::kCodes, &WeightMatrix::rows},
                                 {Part::kScale, &WeightMatrix::scales},
                                 {Part::kZeroPoint, &WeightMatrix::zero_points},
                                 {Part::kOffset, &WeightMatrix::offsets},
                                 {Part::kRowScale, &WeightMatrix::row_scales}};

constexpr Codebook kIntegers = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
constexpr float kIntegerOffset = 8.0f;  // of those
constexpr Codebook kUnsigned = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

const float* levels_of(const Scheme* scheme) {
  if (!scheme || scheme->bits != 4) return nullptr;
  return (scheme->codebook ? *scheme->codebook : kIntegers).data();
}

// A code book's values as bytes.
struct ByteLevels {
  float unit = 0;  // 0: bytes cannot say them
  std::array<signed char, 16> values{};
};

ByteLevels byte_levels(const Scheme& scheme) {
  for (const float unit : {1.0f, 0.5f}) {
    ByteLevels out{unit, {}};
    bool is_exact = scheme.codebook && scheme.layout == Layout::kPackQuantized;
    for (std::size_t i = 0; is_exact && i < out.values.size(); ++i) {
      const float value = (*scheme.codebook)[i] / unit;
      is_exact = std::fabs(value) <= 127 && value == std::nearbyint(value);
      if (is_exact) out.values[i] = static_cast<signed char>(value);
    }
    if (is_exact) return out;
  }
  return {};
}

const ByteLevels& byte_levels_of(const Scheme* scheme) {
  static const std::vector<ByteLevels> kAll = [] {  // of all schemes, in their order; none last
    std::vector<ByteLevels> out;
    for (const Scheme& one : schemes()) out.push_back(byte_levels(one));
    out.emplace_back();
    return out;
  }();
  return scheme ? kAll[static_cast<std::size_t>(scheme - schemes().data())] : kAll.back();
}

// To the second-level cache: what the next rows' scales will be loaded from. They lie apart from the codes, and nothing
// else would fetch them in time.
void prefetch(const kernels::Byte* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

// Those of rows [begin, end) as float32.
void load_scales(const kernels::Table& table, const WeightView& weight, const kernels::Byte* stored, std::size_t begin,
                 std::size_t end, std::vector<float>& out) {
  const std::size_t count = (end - begin) * weight.groups, padded = count + kernels::kScalePadding;
  if (out.size() < padded) out.resize(padded);
  const std::size_t bytes = kernels::kFloatBytes[weight.scale_dtype];
  const kernels::Byte* const from = stored + begin * weight.groups * bytes;
  table.load(weight.scale_dtype, from, count, out.data());
  prefetch(from + count * bytes, count * bytes);
  std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(count), kernels::kScalePadding, 0.0f);
}

// Those of rows [begin, end) from bytes, with the offsets that shifts make.
void expand_scales(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                   std::vector<float>& scales, std::vector<float>& offsets) {
  const std::size_t count = (end - begin) * weight.groups, padded = count + kernels::kScalePadding;
  for (std::vector<float>* out : {&scales, &offsets}) {
    if (out->size() < padded) out->resize(padded);
    std::fill_n(out->begin() + static_cast<std::ptrdiff_t>(count), kernels::kScalePadding, 0.0f);
  }
  const auto* bytes = reinterpret_cast<const signed char*>(weight.scales) + begin * weight.groups;
  for (std::size_t row = begin; row < end; ++row, bytes += weight.groups) {
    float row_scale;
    table.load(kernels::kBfloat16, weight.row_scales + row * 2, 1, &row_scale);
    const std::size_t at = (row - begin) * weight.groups;
    table.expand_scales(bytes, weight.groups, row_scale, weight.shift, scales.data() + at, offsets.data() + at);
  }
}

// The zero points of one row, less the offset of the codes.
void load_zeros(const WeightView& weight, std::size_t row, float* out) {
  const std::size_t at = weight.first_row + row;
  const kernels::Byte* words = weight.zero_points + at / 8 * weight.groups * 4;
  const auto shift = static_cast<unsigned>(at % 8 * 4);
  for (std::size_t group = 0; group < weight.groups; ++group) {
    std::uint32_t word;
    std::memcpy(&word, words + group * 4, sizeof word);
    out[group] = static_cast<float>(static_cast<int>(word >> shift & 15) - 8);
  }
}

// What one row is unpacked with. Shape of each: (groups).
struct RowValues {
  std::vector<float> scales, zeros, offsets;
};

// Values of one coded row, in natural order. Each is rounded where its scheme's formula says it.
void unpack_row(const kernels::Table& table, const WeightView& weight, std::size_t row, RowValues& groups, float* out) {
  if (weight.row_scales) {
    expand_scales(table, weight, row, row + 1, groups.scales, groups.offsets);
  } else {
    load_scales(table, weight, weight.scales, row, row + 1, groups.scales);
  }
  if (weight.zero_points) {
    if (groups.zeros.size() < weight.groups) groups.zeros.resize(weight.groups);
    load_zeros(weight, row, groups.zeros.data());
  }
  if (weight.offsets) load_scales(table, weight, weight.offsets, row, row + 1, groups.offsets);
  // The wider levels take 16 values of one scale at a time.
  const bool is_regular = weight.group_size % 16 == 0 || weight.is_channel();
  const kernels::Table& able = is_regular ? table : kernels::kRef;
  able.unpack[weight.dot]({weight.row(row), groups.scales.data(), weight.zero_points ? groups.zeros.data() : nullptr,
                           weight.offsets || weight.row_scales ? groups.offsets.data() : nullptr,
                           weight.offsets ? kUnsigned.data() : weight.levels, weight.flip, weight.in_features,
                           weight.group_size, out});
}

}  // namespace

const std::byte* WeightMatrix::*operand_of(Part part) noexcept {
  const auto* found = std::ranges::find(kOperands, part, &Operand::part);
  return found == std::end(kOperands) ? nullptr : found->member;
}

WeightView::WeightView(const WeightMatrix& weight)
    : rows(reinterpret_cast<const kernels::Byte*>(weight.rows)),
      row_bytes(static_cast<std::size_t>(weight.row_bytes())),
      scales(reinterpret_cast<const kernels::Byte*>(weight.scales)),
      scale_dtype(weight.scheme && !halfbyte::has_row_scales(*weight.scheme) ? kernels::to_float(weight.scale_dtype)
                                                                             : kernels::kFloat32),
      dot(dot_for(weight)),
      dense_dtype(weight.scheme ? kernels::kFloat32 : kernels::to_float(weight.dense_dtype)),
      is_coded(weight.scheme != nullptr),
      is_integer(weight.scheme && weight.scheme->decode != Decode::kCodebook),
      zero_points(weight.scheme && weight.scheme->decode == Decode::kZeroPoint
                      ? reinterpret_cast<const kernels::Byte*>(weight.zero_points)
                      : nullptr),
      first_row(static_cast<std::size_t>(weight.first_row % 8)),
      offsets(weight.scheme && weight.scheme->decode == Decode::kOffset
                  ? reinterpret_cast<const kernels::Byte*>(weight.offsets)
                  : nullptr),
      row_scales(weight.scheme && halfbyte::has_row_scales(*weight.scheme)
                     ? reinterpret_cast<const kernels::Byte*>(weight.row_scales)
                     : nullptr),
      shift(weight.scheme ? kernels::ShiftBits{weight.scheme->shift_bits, static_cast<float>(weight.scheme->shift)}
                          : kernels::ShiftBits{}),
      levels(levels_of(weight.scheme)),
      byte_levels(byte_levels_of(weight.scheme).unit > 0 ? byte_levels_of(weight.scheme).values.data() : nullptr),
      byte_unit(byte_levels ? byte_levels_of(weight.scheme).unit : 1.0f),
      flip(weight.scheme && weight.scheme->layout == Layout::kBitsandbytes ? 1 : 0),
      out_features(static_cast<std::size_t>(weight.out_features)),
      in_features(static_cast<std::size_t>(weight.in_features)),
      group_size(static_cast<std::size_t>(weight.group_size)),
      groups(weight.in_features > 0 ? static_cast<std::size_t>(weight.groups()) : 0) {}

void load_groups(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                 GroupValues& out) {
  if (weight.row_scales) return expand_scales(table, weight, begin, end, out.scales, out.offsets);
  load_scales(table, weight, weight.scales, begin, end, out.scales);
  if (!weight.has_offsets()) return out.offsets.clear();
  const std::size_t count = (end - begin) * weight.groups;
  if (weight.offsets) {  // of codes from 0 on; the kernels' are less 8
    load_scales(table, weight, weight.offsets, begin, end, out.offsets);
    for (std::size_t i = 0; i < count; ++i) out.offsets[i] += kIntegerOffset * out.scales[i];
    return;
  }
  const std::size_t padded = count + kernels::kScalePadding;
  if (out.offsets.size() < padded) out.offsets.resize(padded);
  for (std::size_t row = begin; row < end; ++row)
    load_zeros(weight, row, out.offsets.data() + (row - begin) * weight.groups);
  for (std::size_t i = 0; i < count; ++i) out.offsets[i] *= -out.scales[i];
  std::fill_n(out.offsets.begin() + static_cast<std::ptrdiff_t>(count), kernels::kScalePadding, 0.0f);
}

void load_int8_groups(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                      GroupValues& out) {
  load_groups(table, weight, begin, end, out);
  if (weight.byte_unit == 1.0f) return;
  for (float& scale : out.scales) scale *= weight.byte_unit;
}

void unpack_rows(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                 kernels::Float dtype, kernels::Byte* out, std::vector<float>& scratch) {
  const std::size_t bytes = weight.in_features * kernels::kFloatBytes[dtype];
  thread_local RowValues groups;
  if (scratch.size() < weight.in_features) scratch.resize(weight.in_features);
  for (std::size_t row = begin; row < end; ++row, out += bytes) {
    if (weight.is_coded) {
      unpack_row(table, weight, row, groups, scratch.data());
    } else {
      table.load(weight.dense_dtype, weight.row(row), weight.in_features, scratch.data());
    }
    table.store(dtype, scratch.data(), weight.in_features, out);
  }
}

void dequantize(const kernels::Table& table, const WeightMatrix& weight, std::int64_t row_begin, std::int64_t row_end,
                std::byte* out, Dtype dtype) {
  if (weight.in_features <= 0 || row_begin >= row_end) return;
  const WeightView view(weight);
  const kernels::Float to = kernels::to_float(dtype);
  const std::size_t bytes = view.in_features * kernels::kFloatBytes[to];
  const auto begin = static_cast<std::size_t>(row_begin), end = static_cast<std::size_t>(row_end);
  const auto pieces = static_cast<std::int64_t>((end - begin + kUnpackedRows - 1) / kUnpackedRows);
  for_each_piece(pieces, (end - begin) * bytes > (1u << 18), [&](std::int64_t piece) {
    thread_local std::vector<float> scratch;
    const std::size_t first = begin + static_cast<std::size_t>(piece) * kUnpackedRows;
    unpack_rows(table, view, first, std::min(first + kUnpackedRows, end), to,
                reinterpret_cast<kernels::Byte*>(out) + (first - begin) * bytes, scratch);
  });
}

void dequantize(const WeightMatrix& weight, std::int64_t row_begin, std::int64_t row_end, std::byte* out, Dtype dtype) {
  dequantize(kernels::kernels(), weight, row_begin, row_end, out, dtype);
}

}  // namespace halfbyte::quant
