// Products of 4-bit codes in groups of 128 with three or four rows of input in 8-bit integers. A vector has eight bytes
// of each of four weight rows, and what they meet of a row of input is spread over all lanes once for two such vectors,
// where avx2_lanes.cpp does it for each: loads are what those products wait for. Smaller groups gain nothing, since
// sums of four rows fill no vector (Zen 5). Compiled with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

#include "quant/kernels/avx2_lanes.inc"

#include "quant/kernels/lane_scales.inc"

constexpr std::size_t kQuad = 4, kSets = 2;  // weight rows of a vector; vectors
constexpr std::size_t kPieceBytes = 8;
constexpr std::size_t kGroupBytes = kQuadGroup / 2, kPieces = kGroupBytes / kPieceBytes;
static_assert(kSets * kQuad == kWidth && kQuadGroup == kInputUnit);

Ints lower_codes(Ints bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
Ints upper_codes(Ints bytes) { return lower_codes(_mm256_srli_epi16(bytes, 4)); }

// What a step has of a row of input: in all lanes that meet it.
struct Piece {
  signed char codes[kPieceBytes];
};

// Products of a group's steps are added up in 16 bits. One is 2 * 15 * 127 at most; sums begin with the input times the
// negated code of zero, so that none on the way exceeds 16 * 2 * 8 * 127. As assembly, so that sums stay in registers;
// volatile, so that all stays in the order in which it is written.
struct Pairs {
  static constexpr std::size_t kMostSteps = 16;

  static inline __attribute__((always_inline)) void add_both(Ints (&sums)[kSets], const Ints (&codes)[kSets],
                                                             const Piece& input) {
    Ints all_lanes, products;
    asm volatile(
        "vpbroadcastq %4, %2\n\tvpmaddubsw %2, %5, %3\n\tvpmaddubsw %2, %6, %2\n\t"
        "vpaddw %3, %0, %0\n\tvpaddw %2, %1, %1"
        : "+x"(sums[0]), "+x"(sums[1]), "=&x"(all_lanes), "=&x"(products)
        : "m"(input), "x"(codes[0]), "x"(codes[1]));
  }
  static Ints begin(const std::int32_t* first_sums, std::size_t g, std::size_t i) {
    Ints out;
    const auto* of_group = reinterpret_cast<const Piece*>(first_sums + g * kWidth);
    asm("vpbroadcastq %1, %0" : "=x"(out) : "m"(of_group[i]));
    return out;
  }
  static Ints in_words(Ints sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
  static Ints exact(Ints sums, const std::int32_t*) { return sums; }
  // For first_sums.
  static Ints code_of_zero() { return _mm256_set1_epi8(8); }
  static void add(Ints& sums, Ints codes, Ints input) {
    sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(codes, input));
  }
  static Ints negated(Ints sums) { return _mm256_sub_epi16(Ints{}, sums); }
};

// {vex}, because AVX-512 has the same instruction in another encoding; volatile as above.
struct Words {
  static inline __attribute__((always_inline)) void add_both(Ints (&sums)[kSets], const Ints (&codes)[kSets],
                                                             const Piece& input) {
    Ints all_lanes;
    asm volatile("vpbroadcastq %3, %2\n\t%{vex%} vpdpbusd %2, %4, %0\n\t%{vex%} vpdpbusd %2, %5, %1"
                 : "+&x"(sums[0]), "+x"(sums[1]), "=&x"(all_lanes)
                 : "m"(input), "x"(codes[0]), "x"(codes[1]));
  }
  static Ints begin(const std::int32_t*, std::size_t, std::size_t) { return Ints{}; }
  static Ints in_words(Ints sums) { return sums; }
  static Ints exact(Ints sums, const std::int32_t* code_sum) {  // the code of zero is 8
    return _mm256_sub_epi32(sums, _mm256_slli_epi32(spread(code_sum), 3));
  }
};

// Of eight weight rows what the first four have in a set is in its first half, and so is in the end: 0 1 4 5, 2 3 6 7.
// The same brings them back.
Floats in_pairs(Floats rows) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(rows), 0xd8)); }

// Of words of both sets, of which a row has two next to each other: their sums, in_pairs.
Ints join(Ints first, Ints second) {
  const Floats a = _mm256_castsi256_ps(first), b = _mm256_castsi256_ps(second);
  return add(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
}

// kWidth weight rows at a time. Those that come next are fetched from front to back.
template <class Products, std::size_t kInputs>
class Quads {
  using Group = Ints[kPieces][kSets];

 public:
  explicit Quads(const Int8DotArguments& arguments) : a_(arguments) {}

  void run() {
    const std::size_t groups = (row_bytes() + kGroupBytes - 1) / kGroupBytes;
    RowPlaces next = rows_of(a_.begin, 0);
    for (std::size_t n = 0; n < kPieces; ++n) turn(next, n, turned_[0]);
    std::size_t now = 0;
    for (std::size_t r = a_.begin; r < a_.end; r += kWidth) {
      scales_ = scale_places<1>(a_, r);
      begin(r);
      const Byte* fetched = a_.rows + r * a_.row_bytes + bytes_ahead(a_.fetch, kWidth, a_.row_bytes);
      for (std::size_t g = 0; g < groups; ++g, fetched += kWidth * kGroupBytes, now = 1 - now) {
        a_.fetch.is_to_second ? fetch<true>(fetched) : fetch<false>(fetched);
        if (g + 1 < groups) {
          next = rows_of(r, g + 1);
        } else if (r + kWidth < a_.end) {
          next = rows_of(r + kWidth, 0);
        }
        multiply(g, turned_[now], turned_[1 - now], next);
      }
      store(r);
    }
  }

 private:
  std::size_t row_bytes() const { return (a_.in_features + 7) / 8 * 4; }

  // The offsets times the sums of the input's groups.
  void begin(std::size_t r) {
    for (Floats& sum : sums_) sum = Floats{};
    for (std::size_t g = 0; a_.offsets && g * kQuadGroup < a_.in_features; ++g) {
      const Floats of_weights = in_pairs(load_floats(a_.offsets + g * a_.scale_stride + (r - a_.begin)));
      for (std::size_t i = 0; i < kInputs; ++i) {
        const std::size_t at = g * kWidth + i;
        const float input = a_.input_scales[at] * static_cast<float>(a_.code_sums[at]);
        sums_[i] = fused(of_weights, all_lanes(&input), sums_[i]);
      }
    }
  }

  void store(std::size_t r) const {
    float* out = a_.output + (r - a_.begin);
    const std::size_t count = r + kWidth <= a_.end ? kWidth : a_.end - r;
    for (std::size_t i = 0; i < kInputs; ++i, out += a_.output_stride) {
      const Floats products = in_pairs(sums_[i]);
      if (count == kWidth) {
        store_floats(out, products);
      } else {
        __builtin_memcpy(out, &products, count * sizeof(float));
      }
    }
  }

  // Where group g of rows from r on is: in `some_`, if rows are not all there (those are the last one again), or end
  // within it.
  RowPlaces rows_of(std::size_t r, std::size_t g) {
    const std::size_t at = g * kGroupBytes, bytes = row_bytes() - at;
    if (r + kWidth <= a_.end && bytes >= kGroupBytes) return {a_.rows + r * a_.row_bytes + at, a_.row_bytes};
    copy_some(r, at, bytes < kGroupBytes ? bytes : kGroupBytes);
    return {some_[0], kGroupBytes};
  }
  __attribute__((noinline)) void copy_some(std::size_t r, std::size_t at, std::size_t bytes) {
    __builtin_memset(some_, 0, sizeof some_);
    for (std::size_t w = 0; w < kWidth; ++w)
      __builtin_memcpy(some_[w], a_.rows + (r + w < a_.end ? r + w : a_.end - 1) * a_.row_bytes + at, bytes);
  }

  // Into the second-level cache, or into both.
  template <bool kToSecond>
  static inline __attribute__((always_inline)) void fetch(const Byte* from) {
#pragma GCC unroll 1
    for (std::size_t line = 0; line < kWidth * kGroupBytes; line += kLineBytes) {
      if constexpr (kToSecond) {
        _mm_prefetch(reinterpret_cast<const char*>(from + line), _MM_HINT_T1);
      } else {
        _mm_prefetch(reinterpret_cast<const char*>(from + line), _MM_HINT_T0);
      }
    }
  }

  // The n-th part of a group: of one set's rows two pieces.
  static inline __attribute__((always_inline)) void turn(const RowPlaces& rows, std::size_t n, Group& to) {
    const std::size_t set = n % kSets, piece = n / kSets * 2;
    const Byte* const from = rows[set * kQuad] + piece * kPieceBytes;
    const auto two = [&](std::size_t row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * rows.bytes));
    };
    const Ints even = _mm256_inserti128_si256(_mm256_castsi128_si256(two(0)), two(2), 1);
    const Ints odd = _mm256_inserti128_si256(_mm256_castsi128_si256(two(1)), two(3), 1);
    kernels::store(&to[piece][set], _mm256_unpacklo_epi64(even, odd));
    kernels::store(&to[piece + 1][set], _mm256_unpackhi_epi64(even, odd));
  }

  // Group g, which has been turned, while the next one is.
  inline __attribute__((always_inline)) void multiply(std::size_t g, const Group& now, Group& later,
                                                      const RowPlaces& next) {
    const auto* input = reinterpret_cast<const Piece*>(a_.input) + g * kPieces * 2 * kQuadRows;
    Ints of_group[kInputs][kSets];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kInputs; ++i) of_group[i][0] = of_group[i][1] = Products::begin(a_.first_sums, g, i);
#pragma GCC unroll 8
    for (std::size_t p = 0; p < kPieces; ++p, input += 2 * kQuadRows) {
      Ints bytes[kSets] = {load(&now[p][0]), load(&now[p][1])};
      asm volatile("" : "+x"(bytes[0]), "+x"(bytes[1]));  // lest they are loaded twice
      add_piece({lower_codes(bytes[0]), lower_codes(bytes[1])}, input, of_group);
      add_piece({upper_codes(bytes[0]), upper_codes(bytes[1])}, input + kQuadRows, of_group);
      turn(next, p, later);
    }
    add_group(g, of_group);
  }

  static inline __attribute__((always_inline)) void add_piece(const Ints (&codes)[kSets], const Piece* input,
                                                              Ints (&of_group)[kInputs][kSets]) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kInputs; ++i) Products::add_both(of_group[i], codes, input[i]);
  }

  inline __attribute__((always_inline)) void add_group(std::size_t g, const Ints (&of_group)[kInputs][kSets]) {
    const Floats of_weights = in_pairs(load_floats(scales_.first + g * scales_.stride));
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kInputs; ++i) {
      const Ints products = join(Products::in_words(of_group[i][0]), Products::in_words(of_group[i][1]));
      const Ints exact = Products::exact(products, a_.code_sums + g * kWidth + i);
      sums_[i] = fused(to_floats(exact) * all_lanes(a_.input_scales + g * kWidth + i), of_weights, sums_[i]);
    }
  }

  const Int8DotArguments& a_;
  ScalePlaces scales_;
  Group turned_[2];       // that which is multiplied, and the next one
  Floats sums_[kInputs];  // in_pairs
  Byte some_[kWidth][kGroupBytes];
};

// A function of its own: as a part of its caller GCC 12 keeps no sum in registers.
template <class Products, std::size_t kInputs>
__attribute__((noinline)) void multiply(const Int8DotArguments& a) {
  Quads<Products, kInputs>(a).run();
}

template <class Products>
void dot(const Int8DotArguments& a) {
  (a.m == 3 ? multiply<Products, 3> : multiply<Products, 4>)(a);
}

}  // namespace

void avx2_dot_quads(const Int8DotArguments& a) noexcept { dot<Pairs>(a); }
void avx2_quad_first_sums(const Int8LaneInput& a) noexcept { first_sums<Pairs, kQuadRows>(a); }
void avx2_vnni_dot_quads(const Int8DotArguments& a) noexcept { dot<Words>(a); }

}  // namespace halfbyte::quant::kernels
