// Every level that this CPU has against the reference: bit for bit, except for the products, which have a bound.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "quant/kernels/dtypes.h"
#include "quant/kernels/kernels.h"
#include "quant/scale_search.h"
#include "tests/catch.h"
#include "tests/quant/levels.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::kernels;

std::vector<const Table*> wider_levels() {
  std::size_t count = 0;
  const Level* all = levels(&count);
  std::vector<const Table*> tables;
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i].table() != &kRef && all[i].is_available()) tables.push_back(all[i].table());
  }
  return tables;
}

std::vector<Byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Byte> bytes(count);
  for (Byte& byte : bytes) byte = static_cast<Byte>(random());
  return bytes;
}

template <class T>
bool is_same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

std::vector<float> loaded(const Table& table, Float from, const std::vector<Byte>& bytes) {
  std::vector<float> values(bytes.size() / kFloatBytes[from]);
  table.load(from, bytes.data(), values.size(), values.data());
  return values;
}

std::vector<Byte> stored(const Table& table, Float to, const std::vector<float>& values) {
  std::vector<Byte> bytes(values.size() * kFloatBytes[to]);
  table.store(to, values.data(), values.size(), bytes.data());
  return bytes;
}

std::vector<Byte> every_16_bits() {
  std::vector<Byte> bytes;
  for (unsigned value = 0; value < 65536; ++value) {
    bytes.push_back(static_cast<Byte>(value & 255));
    bytes.push_back(static_cast<Byte>(value >> 8));
  }
  return bytes;
}

// Values where a rounding could go wrong: all exponents, with low bits around every tie of bfloat16 and float16.
std::vector<float> hard_floats() {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 65536; high += 3) {
    for (const std::uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = high << 16 | low;
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
    }
  }
  return values;
}

TEST_CASE("the reference converts as IEEE 754 says", "[quant]") {
  struct Row {
    float value;
    unsigned half, bfloat;
  };
  const Row rows[] = {{0.0f, 0x0000, 0x0000},        {-0.0f, 0x8000, 0x8000},        {1.0f, 0x3c00, 0x3f80},
                      {-2.5f, 0xc100, 0xc020},       {65504.0f, 0x7bff, 0x4780},     {65519.996f, 0x7bff, 0x4780},
                      {65520.0f, 0x7c00, 0x4780},    {0x1p-24f, 0x0001, 0x3380},     {0x1p-25f, 0x0000, 0x3300},
                      {0x1.8p-25f, 0x0001, 0x3340},  {0x1.ffcp-15f, 0x0400, 0x3880}, {1.00390625f, 0x3c04, 0x3f80},
                      {1.01171875f, 0x3c0c, 0x3f82}, {0x1p-140f, 0x0000, 0x0000},    {0x1p-133f, 0x0000, 0x0001},
                      {3.4e38f, 0x7c00, 0x7f80},     {-INFINITY, 0xfc00, 0xff80}};
  for (const Row& row : rows) {
    CAPTURE(row.value);
    const std::vector<Byte> half = stored(kRef, kFloat16, {row.value}), bfloat = stored(kRef, kBfloat16, {row.value});
    CHECK((half[0] | half[1] << 8) == static_cast<int>(row.half));
    CHECK((bfloat[0] | bfloat[1] << 8) == static_cast<int>(row.bfloat));
  }
  CHECK(std::isnan(loaded(kRef, kBfloat16, stored(kRef, kBfloat16, {std::nanf("")}))[0]));
  CHECK(std::isnan(loaded(kRef, kFloat16, stored(kRef, kFloat16, {std::nanf("")}))[0]));
  for (const Float dtype : {kFloat16, kBfloat16}) {  // every finite value survives a round trip
    for (const float value : loaded(kRef, dtype, every_16_bits())) {
      if (std::isfinite(value) && loaded(kRef, dtype, stored(kRef, dtype, {value}))[0] != value) FAIL(value);
    }
  }
}

TEST_CASE("levels load and store all values alike", "[quant]") {
  for (const Table* table : wider_levels()) {
    CAPTURE(table->name);
    for (const Float dtype : {kFloat32, kFloat16, kBfloat16}) {
      CAPTURE(static_cast<int>(dtype));
      CHECK(is_same(loaded(*table, dtype, every_16_bits()), loaded(kRef, dtype, every_16_bits())));
      CHECK(is_same(stored(*table, dtype, hard_floats()), stored(kRef, dtype, hard_floats())));
    }
  }
}

TEST_CASE("levels load and store any count without touching more", "[quant]") {
  for (const Table* table : wider_levels()) {
    for (const Float dtype : {kFloat32, kFloat16, kBfloat16}) {
      for (std::size_t count = 0; count < 70; ++count) {
        const std::vector<Byte> bytes = random_bytes(count * kFloatBytes[dtype], 3);
        const std::vector<float> values = loaded(kRef, dtype, bytes);
        CHECK(is_same(loaded(*table, dtype, bytes), values));
        CHECK(is_same(stored(*table, dtype, values), stored(kRef, dtype, values)));
      }
    }
  }
}

TEST_CASE("every level finds the first value that is not finite", "[quant]") {
  std::vector<const Table*> tables = wider_levels();
  tables.push_back(&kRef);
  for (const Table* table : tables) {
    for (const Float dtype : {kFloat32, kFloat16, kBfloat16}) {
      for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
        for (std::size_t at = 0; at < 100; ++at) {
          std::vector<float> values(100, -1.5f);
          for (std::size_t i = at; i < 100; i += 7) values[i] = bad;
          const std::vector<Byte> bytes = stored(kRef, dtype, values);
          REQUIRE(table->first_non_finite(dtype, bytes.data(), 100) == at);
          REQUIRE(table->first_non_finite(dtype, bytes.data(), at) == at);
        }
      }
    }
  }
}

constexpr std::size_t kLengths[] = {16, 32, 48, 128, 176, 512};

std::vector<float> random_tile(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> tile(n * kLanes);
  for (float& value : tile) value = normal(random);
  for (std::size_t k = 0; k < n; ++k) tile[k * kLanes + 3] = 0.0f;  // an all-zero group
  return tile;
}

std::vector<float> random_inverses(std::size_t count) {
  std::mt19937 random(5);
  std::vector<float> inverses(count * kLanes);
  for (float& value : inverses) value = 100.0f + static_cast<float>(random() % 4000) * 0.1f;
  inverses[0] = 0.0f;
  inverses[1] = -inverses[1];
  return inverses;
}

TEST_CASE("levels transpose tiles alike and see what is not finite", "[quant]") {
  for (const Table* table : wider_levels()) {
    for (const Float dtype : {kFloat32, kFloat16, kBfloat16}) {
      for (const std::size_t n : {1u, 7u, 16u, 17u, 64u, 172u}) {
        for (const std::size_t lanes : {1u, 5u, 16u}) {
          const std::size_t padded = (n + kTileUnit - 1) / kTileUnit * kTileUnit;
          std::vector<float> values(lanes * n, 0.25f);
          for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) - 40.0f;
          for (const bool is_finite : {true, false}) {
            if (!is_finite) values.back() = -INFINITY;
            const std::vector<Byte> bytes = stored(kRef, dtype, values);
            std::vector<float> mine(padded * kLanes, 9.0f), reference(padded * kLanes, 9.0f);
            CHECK(table->quantize->load_tile(dtype, bytes.data(), n * kFloatBytes[dtype], lanes, n, mine.data()) ==
                  is_finite);
            CHECK(kRef.quantize->load_tile(dtype, bytes.data(), n * kFloatBytes[dtype], lanes, n, reference.data()) ==
                  is_finite);
            CHECK(is_same(mine, reference));
          }
        }
      }
    }
  }
}

struct Sums {
  std::vector<float> squared, slope, codes;
  explicit Sums(std::size_t count) : squared(count * kLanes), slope(count * kLanes), codes(count * kLanes) {}
  Errors errors() { return {squared.data(), slope.data(), codes.data()}; }
};

// Integers of both widths, and the levels of every code book.
const std::vector<Coding> kCodings = [] {
  std::vector<Coding> out;
  for (const Scheme& scheme : schemes()) out.push_back(coding_of(scheme));
  return out;
}();

std::vector<float> random_lows(std::size_t count) {
  std::mt19937 random(6);
  std::vector<float> out(count * kLanes);
  for (float& low : out) low = -static_cast<float>(random() % 16);
  return out;
}

std::vector<float> magnitudes(std::vector<float> values) {
  for (float& value : values) value = std::fabs(value);
  return values;
}

TEST_CASE("levels measure candidates to the same bits", "[quant]") {
  for (const Table* table : wider_levels()) {
    for (const std::size_t n : kLengths) {
      const std::vector<float> tile = random_tile(n, 11), importance = magnitudes(random_tile(n, 12));
      for (const std::size_t count : {1u, 2u, 3u, 4u, 7u, 20u}) {
        Sums mine(count), reference(count);
        const std::vector<float> inverses = random_inverses(count);
        const std::vector<float> lows = random_lows(count);
        for (const Coding& coding : kCodings) {
          for (const Weighed& weighed : {Weighed{tile.data(), nullptr}, Weighed{tile.data(), importance.data()}}) {
            table->quantize->measure(weighed, n, inverses.data(), lows.data(), count, coding, mine.errors());
            kRef.quantize->measure(weighed, n, inverses.data(), lows.data(), count, coding, reference.errors());
            CHECK(is_same(mine.squared, reference.squared));
            CHECK(is_same(mine.slope, reference.slope));
            CHECK(is_same(mine.codes, reference.codes));
          }
        }
      }
    }
  }
}

TEST_CASE("levels round and choose scales to the same bits", "[quant]") {
  constexpr std::size_t kCount = 9;
  std::mt19937 random(2);
  for (const Table* table : wider_levels()) {
    for (const Float dtype : {kFloat32, kFloat16, kBfloat16}) {
      std::vector<float> scales(kCount * kLanes), inverse(scales.size());
      for (std::size_t i = 0; i < scales.size(); ++i)
        scales[i] = std::ldexp(static_cast<float>(random() % 1999) - 999, -static_cast<int>(i));
      scales[1] = 1e6f, scales[2] = -1e6f, scales[3] = 0.0f, scales[4] = -0.0f, scales[5] = 3.3e38f, scales[6] = 1e-39f;
      std::vector<float> reference_scales = scales, reference_inverse = inverse;
      table->quantize->round_scales(dtype, 65504.0f, kCount, scales.data(), inverse.data());
      kRef.quantize->round_scales(dtype, 65504.0f, kCount, reference_scales.data(), reference_inverse.data());
      CHECK(is_same(scales, reference_scales));
      CHECK(is_same(inverse, reference_inverse));
      CHECK(scales[1] >= 65504.0f);
      CHECK(scales[2] == -scales[1]);
      Sums sums(kCount);
      for (std::size_t i = 0; i < scales.size(); ++i) {
        sums.squared[i] = static_cast<float>(random() % 50) * 0.125f;
        sums.slope[i] = static_cast<float>(random() % 50) * 0.5f - 12.0f;
        sums.codes[i] = static_cast<float>(random() % 4) * 30.0f;
      }
      std::vector<float> best[2], refined[2];
      const std::vector<float> base(kLanes, 3.0f), lows = random_lows(kCount);
      for (const int side : {0, 1}) {
        best[side].assign(4 * kLanes, 4.0f);
        refined[side].resize(2 * kLanes);
        const Candidates candidates{scales.data(), inverse.data(), lows.data(), sums.errors()};
        float* const of = best[side].data();
        (side ? kRef : *table)
            .quantize->choose(candidates, kCount, base.data(), {of, of + kLanes, of + 2 * kLanes, of + 3 * kLanes},
                              {refined[side].data(), refined[side].data() + kLanes});
      }
      CHECK(is_same(best[0], best[1]));
      CHECK(is_same(refined[0], refined[1]));
    }
  }
}

TEST_CASE("levels round multiples and choose two to the same bits", "[quant]") {
  constexpr std::size_t kRuns = 3, kCount = 4, kAll = kRuns * kCount * kLanes;
  std::mt19937 random(5);
  for (const Table* table : wider_levels()) {
    for (const float row_scale : {1e-3f, 1e-40f, 2e35f}) {
      const MultiplesOf row{row_scale, -32.0f, 31.0f, -127.0f, 117.0f};
      std::vector<float> wanted(kAll), inverse(kAll), lows(kAll), squared(kAll);
      for (std::size_t i = 0; i < kAll; ++i) {
        wanted[i] = static_cast<float>(random() % 999) * 0.125f - 62.0f;
        lows[i] = static_cast<float>(random() % 4) * 7.0f;
        squared[i] = static_cast<float>(random() % 20);
      }
      wanted[1] = 0.0f, wanted[2] = -0.5f, wanted[3] = 0.25f, wanted[4] = 2.5f;
      std::vector<float> multiples[2] = {wanted, wanted}, inverses[2] = {inverse, inverse}, best[2];
      for (const int side : {0, 1}) {
        const QuantizeTable& level = side ? *kRef.quantize : *table->quantize;
        level.round_multiples(row, kRuns * kCount, multiples[side].data(), lows.data(), inverses[side].data());
        best[side].assign(8 * kLanes, 4e4f);
        float* const of = best[side].data();
        level.choose_two(
            {multiples[side].data(), inverses[side].data(), lows.data(), {squared.data(), nullptr, nullptr}}, kRuns,
            kCount, {of, of + kLanes, of + 2 * kLanes, of + 3 * kLanes},
            {of + 4 * kLanes, of + 5 * kLanes, of + 6 * kLanes, of + 7 * kLanes});
        for (std::size_t lane = 0; lane < kLanes; ++lane) CHECK(of[3 * kLanes + lane] <= of[7 * kLanes + lane]);
      }
      CHECK(is_same(multiples[0], multiples[1]));
      CHECK(is_same(inverses[0], inverses[1]));
      CHECK(is_same(best[0], best[1]));
      CHECK(std::vector(&multiples[0][1], &multiples[0][5]) == std::vector{1.0f, -1.0f, 1.0f, 2.0f});
      const auto unusable = std::ranges::count(inverses[0], 0.0f);
      CHECK((unusable == 0) == (row_scale == 1e-3f));
    }
  }
}

TEST_CASE("levels choose of each run its best", "[quant]") {
  for (const Table* table : test::tables()) {
    constexpr std::size_t kRuns = 3, kCount = 2;
    // The runs' errors: 3 and 2 (the first of equals), 1 and 9, 5 and 4.
    const float errors[] = {3, 2, 1, 9, 5, 4};
    std::vector<float> scale(kRuns * kCount * kLanes, 1.0f), mark(scale.size()), squared(scale.size());
    for (std::size_t i = 0; i < scale.size(); ++i)
      squared[i] = errors[i / kLanes], mark[i] = static_cast<float>(i / kLanes);
    std::vector<float> first(4 * kLanes, 100.0f), second(4 * kLanes, 100.0f);
    table->quantize->choose_two({scale.data(), scale.data(), mark.data(), {squared.data(), nullptr, nullptr}}, kRuns,
                                kCount, {&first[0], &first[kLanes], &first[2 * kLanes], &first[3 * kLanes]},
                                {&second[0], &second[kLanes], &second[2 * kLanes], &second[3 * kLanes]});
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      CHECK((first[2 * kLanes + lane] == 2.0f && first[3 * kLanes + lane] == 1.0f));
      CHECK((second[2 * kLanes + lane] == 1.0f && second[3 * kLanes + lane] == 2.0f));
    }
  }
}

TEST_CASE("levels encode to the same bits", "[quant]") {
  for (const Table* table : wider_levels()) {
    for (const Coding& coding : kCodings) {
      for (const std::size_t n : kLengths) {
        const std::vector<float> tile = random_tile(n, 4), inverses = random_inverses(1), lows = random_lows(1);
        std::vector<std::uint32_t> words[2];
        std::vector<float> sums[2], low[2], high[2];
        for (const int side : {0, 1}) {
          const QuantizeTable& level = side ? *kRef.quantize : *table->quantize;
          words[side].resize(n * static_cast<std::size_t>(coding.bits) / 32 * kLanes);
          sums[side].resize(3 * kLanes), low[side].resize(kLanes), high[side].resize(kLanes);
          level.encode(tile.data(), n, inverses.data(), lows.data(), coding, words[side].data(),
                       {&sums[side][0], &sums[side][kLanes], &sums[side][2 * kLanes]});
          level.extremes(tile.data(), n, low[side].data(), high[side].data());
        }
        CHECK(is_same(words[0], words[1]));
        CHECK(is_same(sums[0], sums[1]));
        CHECK((is_same(low[0], low[1]) && is_same(high[0], high[1])));
      }
    }
  }
}

TEST_CASE("levels unpack codes to the same bits", "[quant]") {
  const Codebook& nf4 = *scheme(SchemeId::kNf4).codebook;
  for (const Table* table : wider_levels()) {
    for (const int dot : {kDotInt4, kDotInt8}) {
      const std::size_t bits = dot == kDotInt4 ? 4 : 8;
      for (const std::size_t group_size : {16u, 32u, 64u, 128u, 0u}) {
        for (const std::size_t n : {1u, 16u, 31u, 48u, 128u, 172u, 384u}) {
          const std::size_t group = group_size ? group_size : n;
          if (n % group != 0) continue;
          const std::vector<Byte> row = random_bytes((n * bits + 7) / 8, 7);
          std::vector<float> scales(n / group), mine(n, 1.0f), reference(n, 2.0f);
          for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(i) - 0.03f;
          for (const int flip : {0, 1}) {
            if (flip && (bits == 8 || n % 2 != 0)) continue;
            for (const float* zeros : {static_cast<const float*>(nullptr), static_cast<const float*>(scales.data())}) {
              for (const float* offsets : {static_cast<const float*>(nullptr), zeros}) {
                UnpackArguments arguments{row.data(), scales.data(), zeros,      offsets, nf4.data(), flip,
                                          n,          group,         mine.data()};
                table->unpack[dot](arguments);
                arguments.out = reference.data();
                kRef.unpack[dot](arguments);
                CHECK(is_same(mine, reference));
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
