#include "convert/gguf/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <halfbyte/linear.h>

namespace halfbyte::convert {
namespace {

constexpr std::size_t kScaleBytes = 2, kQ4Bytes = 18, kQ41Bytes = 20, kQ8Bytes = 34, kMxBytes = 17;

void put_scale(float scale, std::byte* out) noexcept {
  std::byte wide[sizeof scale];
  std::memcpy(wide, &scale, sizeof scale);
  quant::convert(wide, Dtype::kFloat32, out, Dtype::kFloat16, 1);
}

// Value j of a block goes to the low half of byte j, value j + 16 to its high half.
template <class Code>
void put_halves(std::byte* out, Code code) noexcept {
  for (std::size_t j = 0; j < kGgufBlock / 2; ++j)
    out[j] = static_cast<std::byte>(code(j) | code(j + kGgufBlock / 2) << 4);
}

// The scale or offset of a block's group.
void put_half(const std::byte* values, const GgufRow& row, std::size_t block, std::byte* out) noexcept {
  std::memcpy(out, values + block * kGgufBlock / row.group_size * kScaleBytes, kScaleBytes);
}

void put_codes(const GgufRow& row, std::size_t block, std::byte* out) noexcept {
  const std::byte* from = row.codes + block * kGgufBlock / 2;
  put_halves(out, [&](std::size_t j) { return static_cast<unsigned>(from[j / 2]) >> (j % 2 * 4) & 15; });
}

}  // namespace

void exact_q4_0(const GgufRow& row, std::byte* out) noexcept {
  for (std::size_t block = 0; block < row.in_features / kGgufBlock; ++block, out += kQ4Bytes) {
    put_half(row.scales, row, block, out);
    put_codes(row, block, out + kScaleBytes);
  }
}

void exact_q4_1(const GgufRow& row, std::byte* out) noexcept {
  for (std::size_t block = 0; block < row.in_features / kGgufBlock; ++block, out += kQ41Bytes) {
    put_half(row.scales, row, block, out);
    put_half(row.offsets, row, block, out + kScaleBytes);
    put_codes(row, block, out + 2 * kScaleBytes);
  }
}

void exact_q8_0(const GgufRow& row, std::byte* out) noexcept {
  for (std::size_t block = 0; block < row.in_features / kGgufBlock; ++block, out += kQ8Bytes) {
    put_half(row.scales, row, block, out);
    for (std::size_t j = 0; j < kGgufBlock; ++j)
      out[kScaleBytes + j] = row.codes[block * kGgufBlock + j] ^ std::byte{0x80};
  }
}

void exact_mxfp4(const GgufRow& row, std::byte* out) noexcept {
  for (std::size_t block = 0; block < row.in_features / kGgufBlock; ++block, out += kMxBytes) {
    out[0] = row.scales[block * kGgufBlock / row.group_size];
    put_codes(row, block, out + 1);
  }
}

void quantize_q4_0(std::span<const float> values, std::byte* out) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += kGgufBlock, out += kQ4Bytes) {
    const auto block = values.subspan(begin, kGgufBlock);
    const float largest = *std::ranges::max_element(block, {}, [](float value) { return std::abs(value); });
    const float scale = largest / -8.0F, inverse = scale != 0 ? 1.0F / scale : 0.0F;
    put_scale(scale, out);
    put_halves(out + kScaleBytes, [&](std::size_t j) {
      return static_cast<unsigned>(std::clamp(static_cast<int>(block[j] * inverse + 8.5F), 0, 15));
    });
  }
}

void quantize_q4_1(std::span<const float> values, std::byte* out) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += kGgufBlock, out += kQ41Bytes) {
    const auto block = values.subspan(begin, kGgufBlock);
    const auto [least, largest] = std::ranges::minmax(block);
    const float low = least, scale = (largest - low) / 15.0F, inverse = scale != 0 ? 1.0F / scale : 0.0F;
    put_scale(scale, out);
    put_scale(low, out + kScaleBytes);
    put_halves(out + 2 * kScaleBytes, [&](std::size_t j) {
      return static_cast<unsigned>(std::clamp(static_cast<int>((block[j] - low) * inverse + 0.5F), 0, 15));
    });
  }
}

void quantize_q8_0(std::span<const float> values, std::byte* out) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += kGgufBlock, out += kQ8Bytes) {
    const auto block = values.subspan(begin, kGgufBlock);
    float largest = 0;
    for (const float value : block) largest = std::max(largest, std::abs(value));
    const float scale = largest / 127.0F, inverse = scale != 0 ? 1.0F / scale : 0.0F;
    put_scale(scale, out);
    for (std::size_t j = 0; j < kGgufBlock; ++j)
      out[kScaleBytes + j] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(block[j] * inverse)));
  }
}

}  // namespace halfbyte::convert
