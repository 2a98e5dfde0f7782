#include "loader/files/formats/gguf/blocks.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace halfbyte::files::ggml {
namespace {

using Byte = std::uint8_t;

constexpr std::size_t kSuper = 256;  // values of a block of the K types

std::uint16_t word(const Byte* at) noexcept { return static_cast<std::uint16_t>(at[0] | at[1] << 8); }

float half(const Byte* at) noexcept {
  const std::uint16_t bits = word(at);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 15) << 31;
  const std::uint32_t exponent = bits >> 10 & 31U, fraction = bits & 1023U;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Runs `one` on every block.
template <std::size_t kBytes, std::size_t kValues, class One>
void each_block(const std::byte* blocks, std::size_t count, std::byte* out, One one) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::array<float, kValues> values;
    one(reinterpret_cast<const Byte*>(blocks) + i * kBytes, values.data());
    std::memcpy(out + i * sizeof values, values.data(), sizeof values);
  }
}

// A byte holds value j in its low half, value j + 16 in the high one.
template <class Value>
void split_halves(const Byte* codes, float* out, Value value) noexcept {
  for (int j = 0; j < 16; ++j) {
    out[j] = value(codes[j] & 15, j);
    out[j + 16] = value(codes[j] >> 4, j + 16);
  }
}

void copy_halves(const std::byte* blocks, std::size_t count, std::size_t block_bytes, std::byte* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(out + 2 * i, blocks + i * block_bytes, 2);
}

constexpr std::array<float, 16> kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Twice FP4 E2M1.
constexpr std::array<float, 16> kE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(exponent - 128), also where that is subnormal.
float half_power(Byte exponent) noexcept {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : static_cast<std::uint32_t>(exponent - 1) << 23);
}

// Half of an unsigned FP8 E4M3; its NaN counts as 0.
float half_e4m3(Byte bits) noexcept {
  if (bits == 0 || bits == 0x7F) return 0.0F;
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                    : std::ldexp(1.0F + static_cast<float>(fraction) / 8.0F, exponent - 7);
  return value * 0.5F;
}

// Sub-block j's 6-bit scale and minimum of Q4_K and Q5_K.
struct ScaleAndMin {
  float scale, min;
};

ScaleAndMin scale_and_min(const Byte* packed, std::size_t j) noexcept {
  if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  return {static_cast<float>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4),
          static_cast<float>((packed[j + 4] >> 4) | (packed[j] >> 6) << 4)};
}

// Q4_K and Q5_K: pairs of sub-blocks of 32 values share 32 bytes, low halves first. `high` has Q5_K's fifth bits, one
// of each sub-block in every byte; null: there are none.
void k_values_with_min(const Byte* head, const Byte* high, const Byte* codes, float* out) noexcept {
  const float d = half(head), d_min = half(head + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const ScaleAndMin packed = scale_and_min(head + 4, sub);
    const float scale = d * packed.scale, min = d_min * packed.min;
    for (std::size_t l = 0; l < 32; ++l) {
      const int code = codes[sub / 2 * 32 + l] >> (sub % 2 * 4) & 15;
      const int fifth = high && (high[l] >> sub & 1) ? 16 : 0;
      *out++ = scale * static_cast<float>(code + fifth) - min;
    }
  }
}

// The twelve bytes of Q3_K's sixteen 6-bit scales: four bits in the first eight, two in the last four.
int q3_scale(const Byte* packed, std::size_t j) noexcept {
  const int low = packed[j % 8] >> (j / 8 * 4) & 15;
  const int high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

// A digit of base 3, from the top: bytes hold ceil(number * 256 / 3^5).
float ternary(Byte packed, std::size_t digit) noexcept {
  constexpr std::array<Byte, 5> kPowers = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<Byte>(packed * kPowers[digit]);
  return static_cast<float>((shifted * 3 >> 8) - 1);
}

}  // namespace

void f32_values(const std::byte* in, std::size_t count, std::byte* out) noexcept { std::memcpy(out, in, count * 4); }

void f16_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<2, 1>(in, count, out, [](const Byte* b, float* y) { *y = half(b); });
}

void bf16_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<2, 1>(in, count, out, [](const Byte* b, float* y) {
    *y = std::bit_cast<float>(static_cast<std::uint32_t>(word(b)) << 16);
  });
}

namespace {

// ggml's code is halfbyte's; the order of the halves is not: here the first value of two is low. Blocks of `bytes`
// bytes, codes from `at` on.
void low_first_codes(const std::byte* in, std::size_t count, std::size_t bytes, std::size_t at,
                     std::byte* out) noexcept {
  for (std::size_t i = 0; i < count; ++i, out += 16) {
    const Byte* codes = reinterpret_cast<const Byte*>(in) + i * bytes + at;
    for (std::size_t j = 0; j < 8; ++j) {
      const unsigned a = codes[2 * j], b = codes[2 * j + 1];
      out[j] = static_cast<std::byte>((a & 15) | (b & 15) << 4);
      out[j + 8] = static_cast<std::byte>(a >> 4 | (b & 0xF0));
    }
  }
}

}  // namespace

// IQ4_NL's too.
void q4_0_codes(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  low_first_codes(in, count, 18, 2, out);
}

void q4_1_codes(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  low_first_codes(in, count, 20, 4, out);
}

void q4_1_scales(const std::byte* in, std::size_t count, std::byte* out) noexcept { copy_halves(in, count, 20, out); }

void q4_1_offsets(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  copy_halves(in + 2, count, 20, out);
}

void q4_0_scales(const std::byte* in, std::size_t count, std::byte* out) noexcept { copy_halves(in, count, 18, out); }

void q8_0_codes(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < 32; ++j) out[i * 32 + j] = in[i * 34 + 2 + j] ^ std::byte{0x80};
  }
}

void q8_0_scales(const std::byte* in, std::size_t count, std::byte* out) noexcept { copy_halves(in, count, 34, out); }

void mxfp4_codes(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  low_first_codes(in, count, 17, 1, out);
}

// Powers of two, which bfloat16 has too; 255 is NaN.
void mxfp4_scales(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<Byte>(in[i * 17]);
    const auto bits = static_cast<std::uint16_t>(exponent == 0 ? 0x0040 : exponent == 255 ? 0x7fc0 : exponent << 7);
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

void q4_0_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<18, 32>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b);
    split_halves(b + 2, y, [&](int code, int) { return static_cast<float>(code - 8) * d; });
  });
}

void q4_1_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<20, 32>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b), m = half(b + 2);
    split_halves(b + 4, y, [&](int code, int) { return static_cast<float>(code) * d + m; });
  });
}

void q5_0_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<22, 32>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b);
    const std::uint32_t high = word(b + 2) | static_cast<std::uint32_t>(word(b + 4)) << 16;
    split_halves(b + 6, y,
                 [&](int code, int j) { return static_cast<float>((code | (high >> j & 1 ? 16 : 0)) - 16) * d; });
  });
}

void q5_1_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<24, 32>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b), m = half(b + 2);
    const std::uint32_t high = word(b + 4) | static_cast<std::uint32_t>(word(b + 6)) << 16;
    split_halves(b + 8, y,
                 [&](int code, int j) { return static_cast<float>(code | (high >> j & 1 ? 16 : 0)) * d + m; });
  });
}

void q8_0_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<34, 32>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b);
    for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<std::int8_t>(b[2 + j])) * d;
  });
}

// Scales and minima of 16 values (four bits each), 64 bytes of 2-bit codes, d, d_min.
void q2_k_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<84, kSuper>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b + 80), d_min = half(b + 82);
    for (std::size_t sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(b[sub] & 15), min = d_min * static_cast<float>(b[sub] >> 4);
      const Byte* codes = b + 16 + sub / 8 * 32 + sub % 2 * 16;
      for (std::size_t l = 0; l < 16; ++l) *y++ = scale * static_cast<float>(codes[l] >> (sub % 8 / 2 * 2) & 3) - min;
    }
  });
}

// 32 bytes of high bits, 64 of low ones, twelve of scales, d.
void q3_k_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<110, kSuper>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b + 108);
    for (std::size_t sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(q3_scale(b + 96, sub));
      const Byte* low = b + 32 + sub / 8 * 32 + sub % 2 * 16;
      const Byte* high = b + sub % 2 * 16;
      for (std::size_t l = 0; l < 16; ++l) {
        const int code = low[l] >> (sub % 8 / 2 * 2) & 3;
        *y++ = scale * static_cast<float>(code - (high[l] >> (sub / 2) & 1 ? 0 : 4));
      }
    }
  });
}

void q4_k_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<144, kSuper>(in, count, out, [](const Byte* b, float* y) { k_values_with_min(b, nullptr, b + 16, y); });
}

void q5_k_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<176, kSuper>(in, count, out, [](const Byte* b, float* y) { k_values_with_min(b, b + 16, b + 48, y); });
}

// 128 bytes of low halves, 64 of two high bits, sixteen 8-bit scales, d.
void q6_k_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<210, kSuper>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b + 208);
    for (std::size_t i = 0; i < kSuper; ++i) {
      const std::size_t part = i / 128, quarter = i % 128 / 32, l = i % 32;
      const int low = b[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
      const int high = b[128 + part * 32 + l] >> (quarter * 2) & 3;
      const auto scale = static_cast<std::int8_t>(b[192 + i / 16]);
      y[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
    }
  });
}

void iq4_nl_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<18, 32>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b);
    split_halves(b + 2, y, [&](int code, int) { return d * kIq4[static_cast<std::size_t>(code)]; });
  });
}

// d, two high bits of each of eight scales, four low ones, codes.
void iq4_xs_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<136, kSuper>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b);
    for (std::size_t sub = 0; sub < 8; ++sub) {
      const int low = b[4 + sub / 2] >> (sub % 2 * 4) & 15, high = word(b + 2) >> (2 * sub) & 3;
      const float scale = d * static_cast<float>((low | high << 4) - 32);
      split_halves(b + 8 + 16 * sub, y + 32 * sub,
                   [&](int code, int) { return scale * kIq4[static_cast<std::size_t>(code)]; });
    }
  });
}

void mxfp4_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<17, 32>(in, count, out, [](const Byte* b, float* y) {
    const float d = half_power(b[0]);
    split_halves(b + 1, y, [&](int code, int) { return kE2m1[static_cast<std::size_t>(code)] * d; });
  });
}

// Four scales; then eight bytes of each sixteen values, low halves first.
void nvfp4_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<36, 64>(in, count, out, [](const Byte* b, float* y) {
    for (std::size_t i = 0; i < 64; ++i) {
      const std::size_t sub = i / 16, within = i % 16;
      const Byte code = b[4 + sub * 8 + within % 8] >> (within / 8 * 4) & 15;
      y[i] = kE2m1[code] * half_e4m3(b[sub]);
    }
  });
}

// 32 and 16 bytes of five digits each, then four bytes of four; value by value within a digit.
void tq1_0_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<54, kSuper>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b + 52);
    const auto put = [&](const Byte* from, std::size_t bytes, std::size_t digits) {
      for (std::size_t n = 0; n < digits; ++n) {
        for (std::size_t m = 0; m < bytes; ++m) *y++ = ternary(from[m], n) * d;
      }
    };
    put(b, 32, 5);
    put(b + 32, 16, 5);
    put(b + 48, 4, 4);
  });
}

void tq2_0_values(const std::byte* in, std::size_t count, std::byte* out) noexcept {
  each_block<66, kSuper>(in, count, out, [](const Byte* b, float* y) {
    const float d = half(b + 64);
    for (std::size_t i = 0; i < kSuper; ++i) {
      const int code = b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      y[i] = static_cast<float>(code - 1) * d;
    }
  });
}

}  // namespace halfbyte::files::ggml
