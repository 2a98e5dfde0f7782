// Products in 8-bit integers in portable C++: what every other level must equal, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

// Below this, the reciprocal would not be finite; such values count as zero.
constexpr float kSmallest = 0x1p-120f;

// NaN counts as larger than infinity.
float largest_magnitude(const float* x, std::size_t n) noexcept {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  float value;
  std::memcpy(&value, &largest, 4);
  return value;
}

// Of a group, whose codes go from -kMost to kMost. Returns their sum.
template <int kMost, class Code>
std::int32_t quantize_group(const float* values, std::size_t n, Code* codes, float* scale) noexcept {
  const float largest = largest_magnitude(values, n);
  const float inverse = largest > kSmallest ? static_cast<float>(kMost) / largest : 0.0f;
  *scale = largest * (1.0f / static_cast<float>(kMost));
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float scaled = values[i] * inverse;
    codes[i] = static_cast<Code>(std::isfinite(scaled) ? std::nearbyint(scaled) : 0.0f);
    sum += codes[i];
  }
  return sum;
}

void quantize(const float* x, const Int8Groups& out) noexcept {
  for (std::size_t g = 0, at = 0; at < out.n; ++g, at += out.group_size)
    out.sums[g] = quantize_group<127>(x + at, out.group_size, out.codes + at, out.scales + g);
}

void arrange(const signed char* codes, std::size_t n, Int8Dot, signed char* out) noexcept {
  std::memcpy(out, codes, n);
}

// The code of element k less the offset, or its level.
template <Int8Dot kWay>
int value_at(const Byte* row, std::size_t k, const signed char* levels) noexcept {
  if constexpr (kWay == kIntegers8) return static_cast<int>(row[k]) - 128;
  const int code = row[k / 2] >> (k % 2 * 4) & 15;
  return kWay == kLevels4 ? levels[code] : code - 8;
}

template <class Arguments>
float scale_of(const Arguments& a, std::size_t r, std::size_t g) noexcept {
  if (!a.stored.rows) return a.scales[g * a.scale_stride + (r - a.begin) * a.scale_row_stride];
  constexpr std::size_t kBytes[kFloatCount] = {4, 2, 2};
  float scale;
  a.stored.load(a.stored.dtype, a.stored.rows + r * a.stored.row_bytes + g * kBytes[a.stored.dtype], 1, &scale);
  return scale;
}

template <Int8Dot kWay>
float dot_row(const Int8DotArguments& a, std::size_t r, std::size_t m) noexcept {
  const Byte* row = a.rows + r * a.row_bytes;
  const signed char* input = a.input + m * a.input_stride;
  const std::size_t groups = (a.in_features + a.group_size - 1) / a.group_size;
  const auto in_set = [&](std::size_t g) { return place_in_set(m, a.m, g, a.group_stride); };
  float sum = 0;
  for (std::size_t g = 0; a.offsets && g < groups; ++g) {
    const float input_sum = a.input_scales[in_set(g)] * static_cast<float>(a.code_sums[in_set(g)]);
    sum = std::fma(a.offsets[g * a.scale_stride + (r - a.begin) * a.scale_row_stride], input_sum, sum);
  }
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = g * a.group_size, end = std::min(first + a.group_size, a.in_features);
    std::int32_t products = 0;
    for (std::size_t k = first; k < end; ++k) products += value_at<kWay>(row, k, a.levels) * input[k];
    const float value = static_cast<float>(products) * a.input_scales[in_set(g)];
    sum = std::fma(value, scale_of(a, r, g), sum);
  }
  return sum;
}

template <Int8Dot kWay>
void dot(const Int8DotArguments& a) noexcept {
  for (std::size_t r = a.begin; r < a.end; ++r) {
    for (std::size_t m = 0; m < a.m; ++m) a.output[m * a.output_stride + (r - a.begin)] = dot_row<kWay>(a, r, m);
  }
}

void quantize_wide(const float* x, const WideGroups& out) noexcept {
  for (std::size_t g = 0, at = 0; at < out.n; ++g, at += out.group_size)
    out.sums[g] = -128 * quantize_group<32767>(x + at, out.group_size, out.codes + at, out.scales + g);
}

float dot_wide_row(const WideDotArguments& a, std::size_t r, std::size_t m) noexcept {
  const Byte* row = a.rows + r * a.row_bytes;
  const std::int16_t* input = a.input + m * a.input_stride;
  const std::size_t groups = a.input_stride / a.group_size;
  float sum = 0;
  for (std::size_t first = 0, g = 0; first < a.in_features; first += a.group_size, ++g) {
    const std::size_t end = first + a.group_size < a.in_features ? first + a.group_size : a.in_features;
    const std::size_t in_set = place_in_set(m, a.m, g, groups);
    std::int32_t products = a.input_sums[in_set];
    for (std::size_t k = first; k < end; ++k) products += row[k] * input[k];
    const float value = static_cast<float>(products) * a.input_scales[in_set];
    sum = std::fma(value, scale_of(a, r, g), sum);
  }
  return sum;
}

void dot_wide(const WideDotArguments& a) noexcept {
  for (std::size_t r = a.begin; r < a.end; ++r) {
    for (std::size_t m = 0; m < a.m; ++m) a.output[m * a.output_stride + (r - a.begin)] = dot_wide_row(a, r, m);
  }
}

}  // namespace

const Int8Table kRefInt8 = {
    .quantize = quantize, .arrange = arrange, .dot = {dot<kIntegers4>, dot<kIntegers8>, dot<kLevels4>}};
const WideTable kRefWide = {.most_rows = kAnyRows, .quantize = quantize_wide, .dot = dot_wide};

}  // namespace halfbyte::quant::kernels
