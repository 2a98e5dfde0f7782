// How GPTQ and AWQ lay a linear's weight out, for what reads them and for what writes them: names, orders of bits,
// conventions. Codes and zero points are unsigned (0 to 15, 0 to 255): a weight is (code - zero point) * scale.
//
// GPTQ: qweight I32 (in / k, out), qzeros I32 (groups, out / k), scales (groups, out), g_idx I32 (in): the group of
// each input. k = 32 / bits. Field j (lowest first) of qweight[r][n] is the code of input k * r + j, which makes it the
// very word [n][r] of compressed-tensors's weight_packed; field j of qzeros[g][c] is the zero point of output k * c +
// j, the very word [c][g] of its weight_zero_point. AWQ (GEMM, 4 bits): qweight I32 (in, out / 8), qzeros I32 (groups,
// out / 8), scales (groups, out): both words hold eight outputs, in an order of their own. Source:
// ModelCloud/GPTQModel, nn_modules/qlinear/__init__.py, utils/model.py; casper-hansen/AutoAWQ,
// awq/modules/linear/gemm.py, utils/packing_utils.py; intel/auto-round, export/export_to_autoround/export.py.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace halfbyte::files {

// What follows a module's name.
inline constexpr const char* kGptqCodes = ".qweight";
inline constexpr const char* kGptqZeroPoints = ".qzeros";
inline constexpr const char* kGptqScales = ".scales";
inline constexpr const char* kGptqGroups = ".g_idx";

// Of a weight whose file has none: the middle of the codes.
constexpr std::uint32_t middle_zero_point(int bits) noexcept { return 1u << (bits - 1); }

// A one in every field of a word. Version 1 of GPTQ ("gptq", AutoRound's "auto_round:auto_gptq") stores zero points
// less this, as one subtraction from the whole word: so GPTQModel and AutoRound write them, so GPTQModel (and with it
// transformers) adds it when it reads. Field by field differs only next to a field of which 0 was stored.
constexpr std::uint32_t ones_of_fields(int bits) noexcept { return ~std::uint32_t{0} / ((1u << bits) - 1); }

constexpr std::uint32_t to_gptq_v1(std::uint32_t zero_points, int bits) noexcept {
  return zero_points - ones_of_fields(bits);
}
constexpr std::uint32_t from_gptq_v1(std::uint32_t zero_points, int bits) noexcept {
  return zero_points + ones_of_fields(bits);
}

// Field i (lowest first) of an AWQ word belongs to output 8 * c + kAwqOutputs[i].
inline constexpr std::array<int, 8> kAwqOutputs = {0, 2, 4, 6, 1, 3, 5, 7};

// Outputs in their order, from AWQ's, and back.
constexpr std::uint32_t from_awq(std::uint32_t word) noexcept {
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 8; ++i) out |= (word >> (4 * i) & 15u) << (4 * kAwqOutputs[i]);
  return out;
}
constexpr std::uint32_t to_awq(std::uint32_t word) noexcept {
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 8; ++i) out |= (word >> (4 * kAwqOutputs[i]) & 15u) << (4 * i);
  return out;
}

// Eight words of eight fields of 4 bits: field j of word i becomes field i of word j.
constexpr void transpose_fields(std::array<std::uint32_t, 8>& words) noexcept {
  constexpr std::pair<unsigned, std::uint32_t> kSteps[] = {{4, 0x0000ffffu}, {2, 0x00ff00ffu}, {1, 0x0f0f0f0fu}};
  for (const auto& [apart, mask] : kSteps) {
    for (unsigned i = 0; i < 8; ++i) {
      if (i & apart) continue;
      const std::uint32_t changed = ((words[i] >> (4 * apart)) ^ words[i + apart]) & mask;
      words[i] ^= changed << (4 * apart);
      words[i + apart] ^= changed;
    }
  }
}

}  // namespace halfbyte::files
