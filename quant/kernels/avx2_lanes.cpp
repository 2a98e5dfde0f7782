// Products of 4-bit codes with three to eight rows of input in 8-bit integers, each row in lanes of its own: codes are
// unpacked into the first-level cache and spread from there over the rows of the input. Compiled with the flags of
// avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8;
constexpr std::size_t kWeightRows = 4;   // at once
constexpr std::size_t kBlockCodes = 64;  // in a vector of bytes
// As in avx2_int8.cpp.
constexpr std::size_t kLineBytes = 64, kPrefetchRows = 16;

Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const Ints*>(from)); }
Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }

// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const Ints some = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(from), some);
}

// What depends on the rows of input that a vector has, kInputs: a step is kCodes codes of one weight row, again and
// again.
template <std::size_t kInputs>
struct Lanes {
  static constexpr std::size_t kCodes = sizeof(Ints) / kInputs;
  static constexpr std::size_t kVectors = kWeightRows * kInputs / kWidth;  // with all sums

  // As assembly, lest the compiler does it in registers.
  static Ints spread(const Byte* codes) {
    const auto& memory = *reinterpret_cast<const char(*)[kCodes]>(codes);
    Ints out;
    if constexpr (kInputs == 8) asm("vpbroadcastd %1, %0" : "=x"(out) : "m"(memory));
    if constexpr (kInputs == 4) asm("vpbroadcastq %1, %0" : "=x"(out) : "m"(memory));
    return out;
  }
  // From sums over lanes that are yet to be added up, of each weight row.
  static void join(const Ints (&sums)[kWeightRows], Ints (&out)[kVectors]) {
    if constexpr (kInputs == 8) {
      for (std::size_t w = 0; w < kWeightRows; ++w) out[w] = sums[w];
    } else {
      for (std::size_t v = 0; v < kVectors; ++v) out[v] = _mm256_hadd_epi32(sums[2 * v], sums[2 * v + 1]);
    }
  }
  // Values of weight rows from values[0] on, as they lie in vector v.
  static Floats of_weights(const float* values, std::size_t v) {
    if constexpr (kInputs == 8) return _mm256_broadcast_ss(values + v);
    const auto* two = reinterpret_cast<const double*>(values + 2 * v);
    return _mm256_permute_ps(_mm256_castpd_ps(_mm256_broadcast_sd(two)), 0x50);
  }
  // Which weight row a lane of vector v is of.
  static constexpr std::size_t weight_row(std::size_t v, std::size_t lane) {
    return kInputs == 8 ? v : 2 * v + lane / 2 % 2;
  }
};

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

// kWeightRows weight rows from r on, of which those that are not there are the last one again.
template <class Products, std::size_t kGroup, std::size_t kInputs>
struct LaneRows {
  using L = Lanes<kInputs>;
  static constexpr std::size_t kUnit = kGroup > kBlockCodes ? kGroup : kBlockCodes, kBlocks = kUnit / kBlockCodes;
  static constexpr std::size_t kSteps = kGroup / L::kCodes;  // of a group
  static constexpr std::size_t kCount = kSteps < kMostSteps ? kSteps : kMostSteps;

  const Int8DotArguments& a;
  const std::size_t r;
  const Byte* rows[kWeightRows];
  Floats sums[L::kVectors];
  Unpacked<kBlocks> codes;

  LaneRows(const Int8DotArguments& arguments, std::size_t row) : a(arguments), r(row) {
    for (std::size_t w = 0; w < kWeightRows; ++w) rows[w] = a.rows + (r + w < a.end ? r + w : a.end - 1) * a.row_bytes;
  }

  // Of group g, as they lie in vector v.
  Floats of_weights(const float* values, std::size_t g, std::size_t v) const {
    return L::of_weights(values + g * a.scale_stride + (r - a.begin), v);
  }
  Floats input_scales(std::size_t g) const { return load_floats(a.input_scales + g * kWidth); }
  Ints input_sums(std::size_t g) const { return load(a.code_sums + g * kWidth); }
  std::size_t groups() const { return (a.in_features + kGroup - 1) / kGroup; }

  // The offsets times the sums of the input's groups.
  void begin() {
    for (Floats& sum : sums) sum = _mm256_setzero_ps();
    for (std::size_t g = 0; a.offsets && g < groups(); ++g) {
      const Floats input = _mm256_mul_ps(input_scales(g), _mm256_cvtepi32_ps(input_sums(g)));
      for (std::size_t v = 0; v < L::kVectors; ++v)
        sums[v] = _mm256_fmadd_ps(of_weights(a.offsets, g, v), input, sums[v]);
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
        const Ints spread = L::spread(codes.halves[(step + i) % 2][w] + (step + i) / 2 * L::kCodes);
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
      Ints by_row[kWeightRows], products[L::kVectors];
#pragma GCC unroll 4
      for (std::size_t step = 0; step < kSteps; step += kCount)
        add_steps(n * kSteps + step, input + step * sizeof(Ints), by_row);
      L::join(by_row, products);
      const Ints less = _mm256_slli_epi32(input_sums(g + n), 3);
      const Floats scales = input_scales(g + n);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < L::kVectors; ++v) {
        const Floats exact = _mm256_cvtepi32_ps(_mm256_sub_epi32(products[v], less));
        sums[v] = _mm256_fmadd_ps(_mm256_mul_ps(exact, scales), of_weights(a.scales, g + n, v), sums[v]);
      }
    }
  }

  void run() {
    begin();
    const std::size_t words = (a.in_features + 7) / 8, unit_words = kUnit / 8, units = words / unit_words;
    const Byte* prefetch = rows[0] + kPrefetchRows * a.row_bytes;
    for (std::size_t unit = 0; unit < units; ++unit) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kWeightRows * kBlocks; ++i)
        codes.put(i / kBlocks, i % kBlocks, load(rows[i / kBlocks] + unit * (kUnit / 2) + i % kBlocks * sizeof(Ints)));
#pragma GCC unroll 4
      for (std::size_t line = 0; line < kWeightRows * kUnit / 2; line += kLineBytes, prefetch += kLineBytes)
        _mm_prefetch(reinterpret_cast<const char*>(prefetch), _MM_HINT_T1);
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

  void store() const {
    float products[L::kVectors][kWidth];
    for (std::size_t v = 0; v < L::kVectors; ++v) _mm256_storeu_ps(products[v], sums[v]);
    float* const out = a.output + (r - a.begin);
    for (std::size_t v = 0; v < L::kVectors; ++v) {
      for (std::size_t lane = 0; lane < kWidth; ++lane) {
        const std::size_t m = lane_row(lane, kInputs), w = L::weight_row(v, lane);
        if (m < a.m && r + w < a.end) out[m * a.output_stride + w] = products[v][lane];
      }
    }
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
