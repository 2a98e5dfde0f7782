#include "convert/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <halfbyte/linear.h>

namespace halfbyte::convert {
namespace {

constexpr std::size_t kScaleBytes = 2, kQ4Bytes = 18, kQ8Bytes = 34;

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

}  // namespace

void exact_q4_0(const std::byte* codes, const std::byte* scales, std::size_t in_features, std::size_t group_size,
                std::byte* out) noexcept {
  for (std::size_t block = 0; block < in_features / kGgufBlock; ++block, out += kQ4Bytes) {
    std::memcpy(out, scales + block * kGgufBlock / group_size * kScaleBytes, kScaleBytes);
    const std::byte* from = codes + block * kGgufBlock / 2;
    put_halves(out + kScaleBytes,
               [&](std::size_t j) { return static_cast<unsigned>(from[j / 2]) >> (j % 2 * 4) & 15; });
  }
}

void exact_q8_0(const std::byte* codes, const std::byte* scales, std::size_t in_features, std::size_t group_size,
                std::byte* out) noexcept {
  for (std::size_t block = 0; block < in_features / kGgufBlock; ++block, out += kQ8Bytes) {
    std::memcpy(out, scales + block * kGgufBlock / group_size * kScaleBytes, kScaleBytes);
    for (std::size_t j = 0; j < kGgufBlock; ++j) out[kScaleBytes + j] = codes[block * kGgufBlock + j] ^ std::byte{0x80};
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
