// Scales that are multiples of their row's, and code books that are shifted.
#include "quant/row_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"
#include "tests/quant/levels.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

constexpr std::int64_t kRows = 37, kColumns = 288;
constexpr SchemeId kSchemes[] = {SchemeId::kHb4, SchemeId::kHb4Fine};

std::vector<float> weights_of(unsigned seed) { return gaussian(static_cast<std::size_t>(kRows * kColumns), seed); }

GroupOptions how(SchemeId id, Search search = Search::kSquaredError) {
  return {.scheme = &scheme(id), .group_size = scheme(id).default_group, .search = search, .threads = 1};
}

std::int8_t byte_of(const Packed& packed, std::int64_t row, std::int64_t group) {
  return static_cast<std::int8_t>(packed.scales[static_cast<std::size_t>(row * packed.groups() + group)]);
}

float row_scale_of(const Packed& packed, std::int64_t row) {
  return to_floats(packed.row_scales, Dtype::kBfloat16)[static_cast<std::size_t>(row)];
}

// As docs/format.md has it.
float value_of(const Packed& packed, std::int64_t row, std::int64_t column) {
  const auto at = static_cast<std::size_t>(row * kColumns + column);
  const int pair = static_cast<int>(packed.codes[at / 2]);
  const auto code = static_cast<std::size_t>(at % 2 == 0 ? pair & 15 : pair >> 4);
  const bool is_fine = packed.options.scheme->id == SchemeId::kHb4Fine;
  const int byte = byte_of(packed, row, column / packed.options.group_size), shifts = is_fine ? 2 : 4;
  const int times = (byte + 128) % shifts, multiple = (byte - times) / shifts;
  const float level = (*packed.options.scheme->codebook)[code],
              scale = static_cast<float>(multiple) * row_scale_of(packed, row);
  return scale != 0.0f ? (level + static_cast<float>(times * (is_fine ? 5 : 7))) * scale : level * scale;
}

// A byte of a group's scale with any multiple, with and without the shift, and any row scale from the least number on.
Packed with_every_scale(SchemeId id) {
  Packed packed = quantized(weights_of(4), kColumns, how(id));
  for (std::size_t i = 0; i < packed.scales.size(); ++i) packed.scales[i] = static_cast<std::byte>(i * 7);
  for (std::size_t i = 0; i < packed.codes.size(); ++i) packed.codes[i] = static_cast<std::byte>(i * 29);
  for (std::size_t i = 0; i < packed.row_scales.size(); i += 2) {
    packed.row_scales[i] = static_cast<std::byte>(i * 37 + 1);
    packed.row_scales[i + 1] = static_cast<std::byte>(i * 57 / 37);
  }
  return packed;
}

}  // namespace

TEST_CASE("row scales: a weight is its code's value, shifted, times the multiple of its row's scale", "[quant]") {
  for (const SchemeId id : kSchemes) {
    for (const Search search : kSearches) {
      const std::vector<float> weights = weights_of(12);
      const Packed packed = quantized(weights, kColumns, how(id, search));
      const std::vector<float> values = packed.dequantized();
      int shifted = 0;
      for (std::int64_t i = 0; i < kRows * kColumns; ++i)
        REQUIRE(values[static_cast<std::size_t>(i)] == value_of(packed, i / kColumns, i % kColumns));
      for (const std::byte byte : packed.scales) {
        shifted += shift_of(scheme(id), static_cast<std::int8_t>(byte)) != 0 ? 1 : 0;
        CHECK(std::abs(multiple_of(scheme(id), static_cast<std::int8_t>(byte))) <= largest_multiple(scheme(id)) + 1);
      }
      CHECK(shifted > 0);
      CHECK(packed.stats.rel_rmse() < (search == Search::kAbsmax ? 0.085 : 0.075));
    }
  }
}

TEST_CASE("row scales: dequantising rounds once, whatever the multiple and the row's scale", "[quant][levels]") {
  for (const SchemeId id : kSchemes) {
    const Packed packed = with_every_scale(id);
    for (const kernels::Table* table : tables()) {
      CAPTURE(table->name);
      std::vector<float> values(static_cast<std::size_t>(kRows * kColumns));
      dequantize(*table, packed.matrix(), 0, kRows, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32);
      for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
        const float value = values[static_cast<std::size_t>(i)], wanted = value_of(packed, i / kColumns, i % kColumns);
        REQUIRE(std::memcmp(&value, &wanted, sizeof value) == 0);  // signs of zeros too
      }
    }
  }
}

TEST_CASE("row scales: a matrix may be cut into calls between rows, given as groups", "[quant]") {
  const std::vector<float> weights = weights_of(16);
  for (const SchemeId id : kSchemes) {
    const Packed expected = quantized(weights, kColumns, how(id));
    Packed packed = expected;
    std::ranges::fill(packed.row_scales, std::byte{0xee});
    std::ranges::fill(packed.scales, std::byte{0xee});
    GroupOptions options = how(id);
    options.row_groups = packed.groups();
    for (std::int64_t row = 0; row < kRows; row += 5) {
      const std::int64_t rows = std::min<std::int64_t>(5, kRows - row);
      quantize_rows({reinterpret_cast<const std::byte*>(weights.data() + row * kColumns), Dtype::kFloat32,
                     rows * packed.groups(), options.group_size},
                    options,
                    {.codes = packed.codes.data() + row * kColumns / 2,
                     .scales = packed.scales.data() + row * packed.groups(),
                     .row_scales = packed.row_scales.data() + row * 2},
                    packed.stats);
    }
    CHECK(packed.codes == expected.codes);
    CHECK(packed.scales == expected.scales);
    CHECK(packed.row_scales == expected.row_scales);
    const FloatRows part{reinterpret_cast<const std::byte*>(weights.data()), Dtype::kFloat32, packed.groups() + 1,
                         options.group_size};
    CHECK_THROWS_AS(quantize_rows(part, options, packed.rows_out(), packed.stats), std::invalid_argument);
  }
}

TEST_CASE("row scales: rows of zeros, small groups beside large ones, the largest weights", "[quant]") {
  std::vector<float> weights = weights_of(17);
  std::fill_n(weights.begin(), kColumns, 0.0f);
  for (std::size_t i = 0; i < 32; ++i) weights[static_cast<std::size_t>(kColumns) + i] *= 1e-4f;
  weights[2 * kColumns + 5] = std::numeric_limits<float>::max();
  for (const SchemeId id : kSchemes) {
    for (const Search search : kSearches) {
      const Packed packed = quantized(weights, kColumns, how(id, search));
      const std::vector<float> values = packed.dequantized();
      CHECK(row_scale_of(packed, 0) == 0.0f);
      for (std::int64_t group = 0; group < packed.groups(); ++group) CHECK(byte_of(packed, 0, group) == 0);
      for (std::size_t i = 0; i < kColumns + 32; ++i) CHECK(values[i] == 0.0f);
      CHECK(multiple_of(scheme(id), byte_of(packed, 1, 0)) == 0);
      for (const float value : values) REQUIRE(std::isfinite(value));
      CHECK(std::isfinite(packed.stats.rel_rmse()));
    }
  }
}

TEST_CASE("row scales: what counts more comes closer", "[quant]") {
  const std::vector<float> weights = gaussian(kColumns, 18);
  std::vector<float> importance(kColumns, 1.0f);
  for (std::size_t i = 0; i < importance.size(); i += 3) importance[i] = 100.0f;
  for (const SchemeId id : kSchemes) {
    const Scheme& wanted = scheme(id);
    const auto group = static_cast<std::size_t>(wanted.default_group);
    const TileContext context{&kernels::kRef, &wanted, Search::kSquaredError, kernels::kFloat32, false, group};
    RowScaleSearch search(context, group);
    const auto error = [&](std::span<const float> by) {
      std::vector<std::int8_t> bytes(kColumns / group);
      const float row_scale = search.run(weights, by, bytes);
      double sum = 0;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float scale = static_cast<float>(multiple_of(wanted, bytes[i / group])) * row_scale;
        double best = std::numeric_limits<double>::infinity();
        for (const float level : *wanted.codebook) {
          const float value = (level + static_cast<float>(shift_of(wanted, bytes[i / group]))) * scale;
          best = std::min(best, std::pow(double{weights[i]} - value, 2));
        }
        sum += importance[i] * best;
      }
      return sum;
    };
    CHECK(error(importance) < error({}));
  }
}

TEST_CASE("row scales: bits of seven without gaps, and back", "[quant]") {
  const Scheme& fine = scheme(SchemeId::kHb4Fine);
  // -32 shifted, 31, -1 shifted, 0, 1 shifted, 0, 0, 0, -31: fields 41, 3e, 7f, 00, 03, 00, 00, 00, 42.
  const std::vector<int> multiples = {-32, 31, -1, 0, 1, 0, 0, 0, -31};
  const std::vector<int> shifts = {1, 0, 1, 0, 1, 0, 0, 0, 0};
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < multiples.size(); ++i)
    bytes.push_back(static_cast<std::byte>(scale_byte(fine, multiples[i], shifts[i])));
  CHECK(row_scale_bytes(fine, 9) == 8);
  std::vector<std::byte> stored(8), back(9), in_place = bytes;
  pack_scale_bits(fine, bytes.data(), 9, stored.data());
  CHECK(bytes_of(stored) == std::vector<int>{0x41, 0xdf, 0x1f, 0x30, 0x00, 0x00, 0x00, 0x42});
  unpack_scale_bits(fine, stored.data(), 9, back.data());
  CHECK(back == bytes);
  pack_scale_bits(fine, in_place.data(), 9, in_place.data());
  in_place.resize(8);
  CHECK(in_place == stored);
}

TEST_CASE("hb4, hb4_fine: golden values", "[quant]") {
  struct Golden {
    SchemeId id;
    std::vector<float> book;
    std::vector<std::tuple<int, int, int>> scales;  // byte, shift, multiple
  };
  const Golden all[] = {{SchemeId::kHb4,
                         {-127, -105, -83, -66, -51, -38, -26, -13, -2, 10, 21, 34, 48, 63, 81, 117},
                         {{5, 7, 1}, {4, 0, 1}, {0x80, 0, -32}, {0x7f, 21, 31}, {0xfe, 14, -1}}},
                        {SchemeId::kHb4Fine,
                         {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 51, 66, 85, 118},
                         {{3, 5, 1}, {2, 0, 1}, {0xc0, 0, -32}, {0x3f, 5, 31}}}};
  const unsigned char codes[] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
  const unsigned char row_scale[] = {0x80, 0x3f};  // 1
  for (const Golden& golden : all) {
    for (const auto& [byte, shift, multiple] : golden.scales) {
      const auto scale = static_cast<std::byte>(byte);
      const WeightMatrix matrix{.scheme = &scheme(golden.id),
                                .rows = reinterpret_cast<const std::byte*>(codes),
                                .scales = &scale,
                                .scale_dtype = Dtype::kInt8,
                                .out_features = 1,
                                .in_features = 16,
                                .group_size = 16,
                                .row_scales = reinterpret_cast<const std::byte*>(row_scale)};
      std::vector<float> values(16);
      dequantize(matrix, 0, 1, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32);
      for (std::size_t i = 0; i < 16; ++i)
        CHECK(values[i] == (golden.book[i] + static_cast<float>(shift)) * static_cast<float>(multiple));
    }
  }
}
