// The kernels in portable C++: what every other level must equal.
#include <cmath>
#include <cstring>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

constexpr std::size_t kElementBytes[kFloatCount] = {4, 2, 2};

std::uint32_t bits_of(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

float float_of(std::uint32_t bits) noexcept {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

template <class T>
T read(const Byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// As F16C does it: subnormals are kept, a signalling NaN becomes quiet.
float from_half(std::uint16_t half) noexcept {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    const std::uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0;
    return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | quiet);
  }
  if (magnitude < 0x400u) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return float_of(sign | ((magnitude << 13) + (112u << 23)));
}

// Rounds to nearest even; NaN keeps its upper payload and becomes quiet.
std::uint16_t to_half(float value) noexcept {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves units of 2^-24 in the lowest bits
    half = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

float from_bfloat(std::uint16_t value) noexcept { return float_of(std::uint32_t{value} << 16); }

std::uint16_t to_bfloat(float value) noexcept {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void load(Float from, const Byte* source, std::size_t count, float* out) noexcept {
  if (count == 0) return;  // then the pointers may be null, which memcpy forbids
  switch (from) {
    case kFloat32:
      std::memcpy(out, source, count * 4);
      break;
    case kFloat16:
      for (std::size_t i = 0; i < count; ++i) out[i] = from_half(read<std::uint16_t>(source + i * 2));
      break;
    default:
      for (std::size_t i = 0; i < count; ++i) out[i] = from_bfloat(read<std::uint16_t>(source + i * 2));
  }
}

void store(Float to, const float* source, std::size_t count, Byte* out) noexcept {
  if (to == kFloat32) {
    if (count > 0) std::memcpy(out, source, count * 4);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t value = to == kFloat16 ? to_half(source[i]) : to_bfloat(source[i]);
    std::memcpy(out + i * 2, &value, 2);
  }
}

std::size_t first_non_finite(Float from, const Byte* source, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    float value;
    load(from, source + i * kElementBytes[from], 1, &value);
    if (!std::isfinite(value)) return i;
  }
  return count;
}

// The value of field k.
template <int kBits>
float code_at(const Byte* row, std::size_t k, const float* levels) noexcept {
  if constexpr (kBits == 4) return levels[row[k / 2] >> (k % 2 * 4) & 15];
  return static_cast<float>(static_cast<int>(row[k]) - 128);
}

template <int kBits>
void unpack(const UnpackArguments& a) noexcept {
  for (std::size_t first = 0, group = 0; first < a.n; first += a.group_size, ++group) {
    const std::size_t end = first + a.group_size < a.n ? first + a.group_size : a.n;
    const float zero = a.zeros ? a.zeros[group] : 0.0f;
    for (std::size_t k = first; k < end; ++k) {
      const std::size_t field = k ^ static_cast<std::size_t>(a.flip);
      a.out[k] = (code_at<kBits>(a.row, field, a.levels) - zero) * a.scales[group];
      if (a.offsets) a.out[k] += a.offsets[group];
    }
  }
}

// Sums of 16 lanes, then of the lanes in order: the accuracy of the wider levels without their order.
float dot_run(const float* weights, const float* input, std::size_t n) noexcept {
  float lanes[16] = {};
  std::size_t k = 0;
  for (; k + 16 <= n; k += 16) {
    for (std::size_t lane = 0; lane < 16; ++lane) lanes[lane] += weights[k + lane] * input[k + lane];
  }
  for (std::size_t lane = 0; k + lane < n; ++lane) lanes[lane] += weights[k + lane] * input[k + lane];
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

float sum_run(const float* input, std::size_t n) noexcept {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += input[i];
  return sum;
}

constexpr std::size_t kRun = 128;

template <int kBits>
float dot_coded_row(const DotArguments& a, std::size_t r, const float* input) noexcept {
  const Byte* row = a.rows + r * a.row_bytes;
  const std::size_t first_group = (r - a.begin) * a.scale_stride;
  float codes[kRun];
  float sum = 0;
  const std::size_t run = a.group_size < kRun ? a.group_size : kRun;
  for (std::size_t first = 0; first < a.in_features;) {
    const std::size_t group = first / a.group_size, group_end = (group + 1) * a.group_size;
    const std::size_t length = first + run < group_end ? run : group_end - first;
    for (std::size_t i = 0; i < length; ++i) codes[i] = code_at<kBits>(row, first + i, a.levels);
    sum += dot_run(codes, input + first, length) * a.scales[first_group + group];
    if (a.offsets) sum += a.offsets[first_group + group] * sum_run(input + first, length);
    first += length;
  }
  return sum;
}

template <int kBits>
void dot_coded(const DotArguments& a) noexcept {
  for (std::size_t r = a.begin; r < a.end; ++r) {
    for (std::size_t m = 0; m < a.m; ++m)
      a.output[m * a.output_stride + (r - a.begin)] = dot_coded_row<kBits>(a, r, a.input + m * a.input_stride);
  }
}

template <Float kFrom>
void dot_dense(const DotArguments& a) noexcept {
  float values[kRun];
  for (std::size_t r = a.begin; r < a.end; ++r) {
    for (std::size_t m = 0; m < a.m; ++m) a.output[m * a.output_stride + (r - a.begin)] = 0;
    for (std::size_t first = 0; first < a.in_features; first += kRun) {
      const std::size_t length = first + kRun < a.in_features ? kRun : a.in_features - first;
      load(kFrom, a.rows + r * a.row_bytes + first * kElementBytes[kFrom], length, values);
      for (std::size_t m = 0; m < a.m; ++m) {
        a.output[m * a.output_stride + (r - a.begin)] += dot_run(values, a.input + m * a.input_stride + first, length);
      }
    }
  }
}

void expand_scales(const signed char* bytes, std::size_t count, float row_scale, ShiftBits shift, float* scales,
                   float* offsets) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const int multiple = bytes[i] >> shift.bits, times = bytes[i] & ((1 << shift.bits) - 1);
    scales[i] = static_cast<float>(multiple) * row_scale;
    offsets[i] = times != 0 && scales[i] != 0.0f ? static_cast<float>(times) * shift.step * scales[i] : -0.0f;
  }
}

void multiply_columns(const PanelArguments& a) noexcept {
  for (std::size_t m = 0; m < a.rows; ++m) {
    float* out = a.out + m * kTileRows;
    for (std::size_t c = 0; a.is_first && c < kTileRows; ++c) out[c] = 0;
    for (std::size_t group = 0; group < a.groups; ++group) {
      float sums[kTileRows] = {};
      for (std::size_t step = group * a.steps_per_group; step < (group + 1) * a.steps_per_group; ++step) {
        const float x = read<float>(a.input + (step * a.rows + m) * kStepBytes);
        const Byte* values = a.tile + step * kTileRows * kStepBytes;
        for (std::size_t c = 0; c < kTileRows; ++c) sums[c] += read<float>(values + c * kStepBytes) * x;
      }
      for (std::size_t c = 0; c < kTileRows; ++c) out[c] += sums[c] * a.scales[group * a.scale_stride + c];
    }
  }
}

void interleave(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t words, Byte* out,
                std::size_t out_words) noexcept {
  for (std::size_t w = 0; w < words; ++w) {
    for (std::size_t r = 0; r < count; ++r) std::memcpy(out + (w * out_words + r) * 4, rows + r * row_bytes + w * 4, 4);
  }
}

}  // namespace

const ColumnTable kRefColumns = {
    .values_per_step = 1, .unpack4 = nullptr, .pack = nullptr, .multiply = multiply_columns, .interleave = interleave};

const Table kRef = {
    .name = "ref",
    .with_onednn = false,
    .quantize = &kRefQuantize,
    .activations = &kRefActivations,
    .attention = &kRefAttention,
    .bfloat16_attention = nullptr,
    .wide_attention = nullptr,
    .int8_attention = nullptr,
    .int8 = &kRefInt8,
    .wide = &kRefWide,
    .int8_panels = nullptr,
    .int8_block_panels = nullptr,
    .bfloat16_panels = nullptr,
    .bfloat16_block_panels = nullptr,
    .columns = &kRefColumns,
    .bfloat16_columns = nullptr,
    .is_int8_fast = false,
    .words_per_block = 1,
    .load = load,
    .store = store,
    .expand_scales = expand_scales,
    .first_non_finite = first_non_finite,
    .unpack = {unpack<4>, unpack<8>},
    .dot = {dot_coded<4>, dot_coded<8>, dot_dense<kFloat32>, dot_dense<kFloat16>, dot_dense<kBfloat16>},
};

}  // namespace halfbyte::quant::kernels
