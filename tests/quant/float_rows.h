// Matrices of test weights in any weight dtype. For the quant tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include <halfbyte/linear.h>
#include <halfbyte/quantize.h>

namespace halfbyte::quant::test {

inline constexpr Dtype kWeightDtypes[] = {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16};

inline constexpr Search kSearches[] = {Search::kAbsmax, Search::kSquaredError, Search::kLengthened};

inline std::vector<int> bytes_of(const std::vector<std::byte>& bytes) {
  std::vector<int> values;
  for (const std::byte byte : bytes) values.push_back(static_cast<int>(byte));
  return values;
}

inline std::vector<float> gaussian(std::size_t count, unsigned seed, float deviation = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<std::byte> to_dtype(const std::vector<float>& values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_bytes(dtype)));
  convert(reinterpret_cast<const std::byte*>(values.data()), Dtype::kFloat32, bytes.data(), dtype,
          static_cast<std::int64_t>(values.size()));
  return bytes;
}

inline std::vector<float> to_floats(const std::vector<std::byte>& bytes, Dtype dtype) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(size_bytes(dtype)));
  convert(bytes.data(), dtype, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32,
          static_cast<std::int64_t>(values.size()));
  return values;
}

// Whether quantize_rows takes groups of this size.
inline bool can_quantize(const Scheme& scheme, std::int64_t group_size) {
  const bool fills_bytes = scheme.layout == Layout::kPackQuantized || group_size % 2 == 0;
  return fills_bytes && (has_code_of_zero(scheme) || group_size % 16 == 0);
}

// A quantised matrix that owns its bytes. Each buffer is exactly as long as the format says, so that a sanitizer sees
// any access beyond it.
struct Packed {
  GroupOptions options;
  std::int64_t rows, in_features;
  std::vector<std::byte> codes, scales;
  std::vector<std::uint8_t> zero_points;  // one a group, and as words
  std::vector<std::uint32_t> zero_point_words;
  std::vector<std::byte> offsets, row_scales;
  ErrorStats stats;
  std::optional<NonFinite> non_finite;

  std::int64_t groups() const { return in_features / options.group_size; }
  PackedRows rows_out() {
    return {codes.data(), scales.data(), zero_points.data(), nullptr, offsets.data(), row_scales.data()};
  }
  void pack_zeros() {
    zero_point_words.resize(static_cast<std::size_t>(halfbyte::zero_point_words(rows) * groups()));
    pack_zero_points(zero_points.data(), rows, groups(), zero_point_words.data());
  }
  WeightMatrix matrix() const {
    WeightMatrix out{options.scheme, Dtype::kFloat32, codes.data(),      scales.data(), options.scale_dtype,
                     rows,           in_features,     options.group_size};
    if (options.scheme->decode == Decode::kZeroPoint)
      out.zero_points = reinterpret_cast<const std::byte*>(zero_point_words.data());
    if (options.scheme->decode == Decode::kOffset) out.offsets = offsets.data();
    if (has_row_scales(*options.scheme)) out.row_scales = row_scales.data();
    return out;
  }
  std::vector<float> dequantized() const {
    std::vector<float> values(static_cast<std::size_t>(rows * in_features));
    dequantize(matrix(), 0, rows, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32);
    return values;
  }
};

inline Packed quantized(const std::vector<std::byte>& weights, Dtype dtype, std::int64_t in_features,
                        GroupOptions options) {
  Packed packed{options,     static_cast<std::int64_t>(weights.size()) / size_bytes(dtype) / in_features,
                in_features, {},
                {},          {},
                {},          {},
                {},          {},
                {}};
  packed.codes.resize(static_cast<std::size_t>(packed.rows * packed_row_bytes(*options.scheme, in_features)));
  const std::int64_t scale_bytes = has_row_scales(*options.scheme) ? 1 : size_bytes(options.scale_dtype);
  packed.scales.resize(static_cast<std::size_t>(packed.rows * (in_features / options.group_size) * scale_bytes));
  if (has_row_scales(*options.scheme)) packed.row_scales.resize(static_cast<std::size_t>(packed.rows * 2));
  if (options.scheme->decode == Decode::kZeroPoint)
    packed.zero_points.resize(static_cast<std::size_t>(packed.rows * packed.groups()));
  if (options.scheme->decode == Decode::kOffset) packed.offsets.resize(packed.scales.size());
  packed.non_finite =
      quantize_rows({weights.data(), dtype, packed.rows, in_features}, options, packed.rows_out(), packed.stats);
  if (options.scheme->decode == Decode::kZeroPoint) packed.pack_zeros();
  return packed;
}

inline Packed quantized(const std::vector<float>& weights, std::int64_t in_features, GroupOptions options) {
  return quantized(to_dtype(weights, Dtype::kFloat32), Dtype::kFloat32, in_features, options);
}

}  // namespace halfbyte::quant::test
