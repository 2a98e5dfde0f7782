// Products of 4-bit codes with three to eight rows of input in 8-bit integers, each row in lanes of its own. Compiled
// with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

#include "quant/kernels/avx2_lanes.inc"

constexpr std::size_t kBlockCodes = 64;  // in a vector of bytes

// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const Ints some = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(from), some);
}

// Products of some steps are added up in 16 bits. As assembly, so that sums stay in registers.
struct Pairs {
  static Ints first(Ints codes, Ints input) {
    Ints out;
    asm("vpmaddubsw %2, %1, %0" : "=x"(out) : "x"(codes), "x"(input));
    return out;
  }
  static void add(Ints& sums, Ints codes, Ints input) {
    asm("vpmaddubsw %2, %1, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "+x"(codes) : "x"(input));
  }
  static Ints in_words(Ints sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
};

// {vex}, because AVX-512 has the same instruction in another encoding.
struct Words {
  static Ints first(Ints codes, Ints input) {
    Ints sums = _mm256_setzero_si256();
    add(sums, codes, input);
    return sums;
  }
  static void add(Ints& sums, Ints codes, Ints input) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(input));
  }
  static Ints in_words(Ints sums) { return sums; }
};

constexpr std::size_t kMostSteps = 8;  // that are added up before their sums are: 8 * 2 * 15 * 127 fits 16 bits

// Codes of kWeightRows rows, of each vector of bytes the lower ones and the upper ones.
template <std::size_t kBlocks>
struct Unpacked {
  alignas(32) Byte halves[2][kWeightRows][kBlocks * sizeof(Ints)];

  void put(std::size_t row, std::size_t block, Ints bytes) {
    const Ints mask = _mm256_set1_epi8(15);
    const Ints upper = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
    _mm256_store_si256(reinterpret_cast<Ints*>(halves[0][row]) + block, _mm256_and_si256(bytes, mask));
    _mm256_store_si256(reinterpret_cast<Ints*>(halves[1][row]) + block, upper);
  }
};

template <class Products, std::size_t kGroup, std::size_t kInputs>
struct LaneRows : LaneSums<Int8DotArguments, kInputs> {
  using Base = LaneSums<Int8DotArguments, kInputs>;
  using L = Lanes<kInputs>;
  using Base::a, Base::rows, Base::sums;
  static constexpr std::size_t kUnit = kGroup > kBlockCodes ? kGroup : kBlockCodes, kBlocks = kUnit / kBlockCodes;
  static constexpr std::size_t kSteps = kGroup / L::kStepBytes;  // of a group
  static constexpr std::size_t kCount = kSteps < kMostSteps ? kSteps : kMostSteps;

  Unpacked<kBlocks> codes;

  LaneRows(const Int8DotArguments& arguments, std::size_t row) : Base(arguments, row) {}

  Ints input_sums(std::size_t g) const { return load(a.code_sums + g * kWidth); }
  std::size_t groups() const { return (a.in_features + kGroup - 1) / kGroup; }

  // The offsets times the sums of the input's groups.
  void begin() {
    for (std::size_t g = 0; a.offsets && g < groups(); ++g) {
      const Floats input = _mm256_mul_ps(this->input_scales(g), _mm256_cvtepi32_ps(input_sums(g)));
      for (std::size_t v = 0; v < L::kVectors; ++v)
        sums[v] = _mm256_fmadd_ps(this->of_weights(a.offsets, g, v), input, sums[v]);
    }
  }

  // Steps [step, step + kCount) of what has been unpacked. `input`: of the first of them.
  inline __attribute__((always_inline)) void add_steps(std::size_t step, const signed char* input,
                                                       Ints (&out)[kWeightRows]) const {
    Ints some[kWeightRows];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kCount; ++i) {
      const Ints x = load(input + i * sizeof(Ints));
#pragma GCC unroll 4
      for (std::size_t w = 0; w < kWeightRows; ++w) {
        const Ints spread = L::spread(codes.halves[(step + i) % 2][w] + (step + i) / 2 * L::kStepBytes);
        if (i == 0)
          some[w] = Products::first(spread, x);
        else
          Products::add(some[w], spread, x);
      }
    }
#pragma GCC unroll 4
    for (std::size_t w = 0; w < kWeightRows; ++w) {
      const Ints words = Products::in_words(some[w]);
      out[w] = step % kSteps == 0 ? words : _mm256_add_epi32(out[w], words);
    }
  }

  // The groups of a unit that has been unpacked, of which the first is group g.
  inline __attribute__((always_inline)) void multiply(std::size_t g, std::size_t count) {
#pragma GCC unroll 4
    for (std::size_t n = 0; n < kUnit / kGroup; ++n) {
      if (n >= count) break;
      const signed char* input = a.input + (g + n) * kSteps * sizeof(Ints);
      Ints by_row[kWeightRows];
#pragma GCC unroll 4
      for (std::size_t step = 0; step < kSteps; step += kCount)
        add_steps(n * kSteps + step, input + step * sizeof(Ints), by_row);
      const Ints offset = _mm256_slli_epi32(input_sums(g + n), 3);
      this->add(g + n, by_row, _mm256_sub_epi32(Ints{}, offset));
    }
  }

  void run() {
    begin();
    const std::size_t words = (a.in_features + 7) / 8, unit_words = kUnit / 8, units = words / unit_words;
    for (std::size_t unit = 0; unit < units; ++unit) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kWeightRows * kBlocks; ++i)
        codes.put(i / kBlocks, i % kBlocks, load(rows[i / kBlocks] + unit * (kUnit / 2) + i % kBlocks * sizeof(Ints)));
      this->prefetch(unit * (kUnit / 2), kUnit / 2);
      multiply(unit * (kUnit / kGroup), kUnit / kGroup);
    }
    const std::size_t left = words - units * unit_words, first = units * (kUnit / kGroup);
    if (left == 0) return;
    for (std::size_t i = 0; i < kWeightRows * kBlocks; ++i) {
      const std::size_t before = i % kBlocks * kWidth;
      const Byte* from = rows[i / kBlocks] + units * (kUnit / 2) + before * 4;
      codes.put(i / kBlocks, i % kBlocks, left > before ? load_words(from, left - before) : Ints{});
    }
    multiply(first, groups() - first);
  }
};

template <class Products, std::size_t kGroup, std::size_t kInputs>
void dot_rows(const Int8DotArguments& a) {
  for (std::size_t r = a.begin; r < a.end; r += kWeightRows) {
    LaneRows<Products, kGroup, kInputs> rows(a, r);
    rows.run();
    rows.store();
  }
}

template <class Products, std::size_t kGroup>
void dot_group_size(const Int8DotArguments& a) {
  lanes_for(a.m) == kLaneRows ? dot_rows<Products, kGroup, 8>(a) : dot_rows<Products, kGroup, 4>(a);
}

template <class Products>
void dot(const Int8DotArguments& a) {
  constexpr void (*kByGroupSize[])(const Int8DotArguments&) = {
      dot_group_size<Products, 16>, dot_group_size<Products, 32>, dot_group_size<Products, 64>,
      dot_group_size<Products, 128>};
  kByGroupSize[__builtin_ctzll(a.group_size) - 4](a);
}

}  // namespace

void avx2_dot_lanes(const Int8DotArguments& a) noexcept { dot<Pairs>(a); }
void avx2_vnni_dot_lanes(const Int8DotArguments& a) noexcept { dot<Words>(a); }

}  // namespace halfbyte::quant::kernels
