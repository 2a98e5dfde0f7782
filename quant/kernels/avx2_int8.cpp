// Products of few rows in 8-bit integers with AVX2, and with AVX-VNNI besides. Compiled with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8;
// As in avx2.cpp: behind one row, far enough to hide memory's latency.
constexpr std::size_t kPrefetchBytes = 4096;

Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const Ints*>(from)); }
void store(void* to, Ints value) { _mm256_storeu_si256(static_cast<Ints*>(to), value); }
Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm256_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm256_cvtepi32_ps(value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }

// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  if (count >= kWidth) return load(from);
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(from),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane));
}

template <class Fold>
std::int32_t reduce(Ints value, Fold fold) {
  __m128i half = fold(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  half = fold(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(fold(half, _mm_shuffle_epi32(half, 0xb1)));
}

std::int32_t sum_of(Ints value) {
  return reduce(value, [](__m128i a, __m128i b) { return _mm_add_epi32(a, b); });
}

__m128 sum_of_quarters(Floats value) {
  return _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
}
float sum_of(Floats value) {
  __m128 sum = sum_of_quarters(value);
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// NaN counts as larger than infinity.
float largest_magnitude(const float* x, std::size_t n) {
  Ints largest = _mm256_setzero_si256();
  for (std::size_t i = 0; i < n; i += kWidth) {
    largest = _mm256_max_epi32(largest, _mm256_and_si256(load(x + i), _mm256_set1_epi32(0x7fffffff)));
  }
  const std::int32_t bits = reduce(largest, [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

// Values in units of the scale, rounded; zero where they are not finite.
template <int kMost>
Ints round_values(Floats scaled) {
  const Floats magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), scaled);
  const Floats is_finite = _mm256_cmp_ps(magnitude, _mm256_set1_ps(kMost + 1), _CMP_LT_OQ);
  return _mm256_cvtps_epi32(_mm256_and_ps(scaled, is_finite));
}

void store_codes(signed char* to, Ints codes) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
}

// Sums of pairs of 16-bit values.
Ints sum_pairs(Ints values) { return _mm256_madd_epi16(values, _mm256_set1_epi16(1)); }
Ints sums_of_fours(Ints codes) { return sum_pairs(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes)); }

void split_pairs(const signed char* codes, signed char* out) {
  const Ints order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  const Ints first = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load(codes), order), 0xd8);
  const Ints second = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load(codes + 32), order), 0xd8);
  store(out, _mm256_permute2x128_si256(first, second, 0x20));
  store(out + 32, _mm256_permute2x128_si256(first, second, 0x31));
}

// The scale of each lane of a block that holds kGroups groups.
template <std::size_t kGroups>
struct LaneScales {
  Ints spread;
  int shift;
  explicit LaneScales(std::size_t group_size) : shift(__builtin_ctzll(group_size)) {
    const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    spread = _mm256_srli_epi32(lane, __builtin_ctzll(kWidth / kGroups));
  }
  Floats at(const float* scales, std::size_t k) const {
    if constexpr (kGroups == 1) return _mm256_broadcast_ss(scales + (k >> shift));
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(scales + (k >> shift))), spread);
  }
};

#include "quant/kernels/avx2_int8_blocks.inc"

constexpr float kSmallest = 0x1p-120f;
typedef std::int32_t Words __attribute__((vector_size(kWidth * sizeof(std::int32_t))));

void quantize(const float* x, const Int8Groups& out) noexcept {
  for (std::size_t group = 0; group * out.group_size < out.n; ++group) {
    const float* values = x + group * out.group_size;
    const float largest = largest_magnitude(values, out.group_size);
    const Floats inverse = Floats{} + (largest > kSmallest ? 127.0f / largest : 0.0f);
    Words sums = {};
    for (std::size_t i = 0; i < out.group_size; i += kWidth) {
      const Ints codes = round_values<127>(load_floats(values + i) * inverse);
      sums += (Words)codes;
      store_codes(out.codes + group * out.group_size + i, codes);
    }
    out.scales[group] = largest * (1.0f / 127.0f);
    out.sums[group] = sum_of((Ints)sums);
  }
}

// Of each block that multiplies 4-bit codes, the even ones come first, then the odd ones: as the lower and upper halves
// of bytes meet them.
void arrange(const signed char* codes, std::size_t n, Int8Dot way, signed char* out, std::int32_t* inits) noexcept {
  const std::size_t block = kWidth * (way != kIntegers8 ? 8 : 4);
  const std::int32_t offset = way == kIntegers4 ? -8 : -128;
  for (std::size_t k = 0; k < n; k += block, inits += kWidth) {
    Words sums;
    if (way != kIntegers8) {
      split_pairs(codes + k, out + k);
      sums = ((Words)sums_of_fours(load(out + k)) + (Words)sums_of_fours(load(out + k + block / 2))) * offset;
    } else {
      store(out + k, load(codes + k));
      sums = (Words)sums_of_fours(load(out + k)) * offset;
    }
    store(inits, (Ints)sums);
  }
}

// The scales of a row's groups times those of the input. Returns what the row's sums begin with: the offsets times the
// sums of the input's groups.
template <bool kHasOffsets>
Floats combine_scales(const Int8DotArguments& a, std::size_t r, std::size_t m, float* out) {
  const std::size_t at = (r - a.begin) * a.scale_stride, input_at = m * a.group_stride;
  const std::size_t groups = (a.in_features + a.group_size - 1) / a.group_size;
  Floats added = {};
  for (std::size_t g = 0; g < groups; g += kWidth) {
    const Floats scale = load_floats(a.scales + at + g);
    store_floats(out + g, scale * load_floats(a.input_scales + input_at + g));
    if constexpr (kHasOffsets) {
      added = fused(load_floats(a.offsets + at + g), load_floats(a.input_sums + input_at + g), added);
    }
  }
  return added;
}

// One weight row times kRows rows of input, each with sums of its own in one order. A block's products are exact.
template <class Block, std::size_t kGroups, bool kHasOffsets, std::size_t kRows>
void dot_row(const Int8DotArguments& a, std::size_t r, std::size_t m) {
  const LaneScales<kGroups> lanes(a.group_size);
  const Byte* row = a.rows + r * a.row_bytes;
  const std::size_t codes_per_word = Block::kInputs / kWidth;
  const std::size_t words = (a.in_features + codes_per_word - 1) / codes_per_word;
  const Ints levels = Block::levels(a);
  Floats sums[kRows];
  for (std::size_t i = 0; i < kRows; ++i)
    sums[i] = combine_scales<kHasOffsets>(a, r, m + i, a.scratch + i * a.group_stride);
  const signed char* input = a.input + m * a.input_stride;
  const std::int32_t* inits = a.inits + m * (a.input_stride / 4);
  for (std::size_t word = 0, k = 0; word < words; word += kWidth, k += Block::kInputs) {
    _mm_prefetch(reinterpret_cast<const char*>(row + word * 4 + kPrefetchBytes), _MM_HINT_T1);
    const Block block(load_words(row + word * 4, words - word), levels);
    for (std::size_t i = 0; i < kRows; ++i) {
      const Ints products = block.products(input + i * a.input_stride + k, inits + i * (a.input_stride / 4) + word);
      sums[i] = fused(to_floats(products), lanes.at(a.scratch + i * a.group_stride, k), sums[i]);
    }
  }
  for (std::size_t i = 0; i < kRows; ++i) a.output[(m + i) * a.output_stride + (r - a.begin)] = sum_of(sums[i]);
}

#include "quant/kernels/int8_sums.inc"

// Blocks of a group of which `words` words are there: others are zeros.
template <class Block, std::size_t kBlocks>
struct Group {
  Block blocks[kBlocks];
  static Group whole(const Byte* codes) {
    if constexpr (kBlocks == 1)
      return {{Block(load(codes), Ints{})}};
    else
      return {{Block(load(codes), Ints{}), Block(load(codes + 32), Ints{})}};
  }
  static Group some(const Byte* codes, std::size_t words) {
    const std::size_t more = words > kWidth ? words - kWidth : 0;
    const Block first(load_words(codes, words), Ints{});
    if constexpr (kBlocks == 1)
      return {{first}};
    else
      return {{first, Block(more ? load_words(codes + 32, more) : Ints{}, Ints{})}};
  }
  Ints products(const signed char* x) const { return Block::raw_products(blocks, x); }
};

// Where a group begins, of several weight rows and of several rows of input, and the products of their scales.
struct GroupPlace {
  const Byte* codes;
  const signed char* input;
  const float* scale;
};

// `group_of(codes)` gives a Group.
template <std::size_t kRows, std::size_t kWeightRows, class GroupOf>
inline __attribute__((always_inline)) void add_group(const Int8DotArguments& a, const GroupPlace& place,
                                                     const GroupOf& group_of, Floats (&sums)[kRows][kWeightRows]) {
#pragma GCC unroll 4
  for (std::size_t w = 0; w < kWeightRows; ++w) {
    const auto group = group_of(place.codes + w * a.row_bytes);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
      const Ints products = group.products(place.input + i * a.input_stride);
      const Floats scale = _mm256_broadcast_ss(place.scale + (i * kWeightRows + w) * a.group_stride);
      sums[i][w] = fused(to_floats(products), scale, sums[i][w]);
    }
  }
}

// As dot_row, of kWeightRows rows whose groups are a block or two: their products are added up as integers, so that a
// group costs one product with its scale.
template <class Block, std::size_t kBlocks, bool kHasOffsets, std::size_t kRows, std::size_t kWeightRows>
void dot_rows_of_groups(const Int8DotArguments& a, std::size_t r, std::size_t m) {
  using Group = Group<Block, kBlocks>;
  constexpr std::size_t kGroup = kBlocks * Block::kInputs, kGroupBytes = kBlocks * sizeof(Ints);
  GroupPlace place{a.rows + r * a.row_bytes, a.input + m * a.input_stride, a.scratch};
  const std::size_t words = (a.in_features + 7) / 8, left = words % (kGroupBytes / 4);
  Floats sums[kRows][kWeightRows];
  begin_sums<kHasOffsets>(a, r, m, sums);
  for (const Byte* const end = place.codes + (words - left) * 4; place.codes < end;
       place.codes += kGroupBytes, place.input += kGroup, ++place.scale) {
    add_group(
        a, place,
        [](const Byte* codes) {
          _mm_prefetch(reinterpret_cast<const char*>(codes + kPrefetchBytes), _MM_HINT_T1);
          return Group::whole(codes);
        },
        sums);
  }
  if (left > 0)
    add_group(
        a, place, [left](const Byte* codes) { return Group::some(codes, left); }, sums);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) {
    float* const output = a.output + (m + i) * a.output_stride + (r - a.begin);
    if constexpr (kWeightRows == 4)
      _mm_storeu_ps(output, sums_of(sums[i]));
    else
      for (std::size_t w = 0; w < kWeightRows; ++w) output[w] = sum_of(sums[i][w]);
  }
}

// Input rows by eights (where kMost is 8), fours, twos and ones; all weight rows pass for each such set, of which `dot`
// multiplies some: dot<rows>(first weight row, first row of input) -> how many.
template <std::size_t kMost, class Dot>
void dot_rows(const Int8DotArguments& a, const Dot& dot) {
  std::size_t m = 0;
  const auto multiply = [&]<std::size_t kRows>() {
    for (; m + kRows <= a.m; m += kRows) {
      for (std::size_t r = a.begin; r < a.end;) r += dot.template operator()<kRows>(r, m);
    }
  };
  if constexpr (kMost == 8) multiply.template operator()<8>();
  multiply.template operator()<4>();
  multiply.template operator()<2>();
  multiply.template operator()<1>();
}

template <class Block, std::size_t kBlocks, bool kHasOffsets>
void dot_long_rows(const Int8DotArguments& a) {
  dot_rows<8>(a, [&a]<std::size_t kRows>(std::size_t r, std::size_t m) -> std::size_t {
    // Of more there are more sums than registers.
    constexpr std::size_t kWeightRows = kRows <= 2 ? kDotWeightRows : 1;
    if (r + kWeightRows > a.end) return dot_rows_of_groups<Block, kBlocks, kHasOffsets, kRows, 1>(a, r, m), 1;
    dot_rows_of_groups<Block, kBlocks, kHasOffsets, kRows, kWeightRows>(a, r, m);
    return kWeightRows;
  });
}

template <class Block, std::size_t kBlocks>
void dot_long_groups(const Int8DotArguments& a) {
  (a.offsets ? dot_long_rows<Block, kBlocks, true> : dot_long_rows<Block, kBlocks, false>)(a);
}

template <class Block, std::size_t kGroups, bool kHasOffsets>
void dot_short_rows(const Int8DotArguments& a) {
  dot_rows<4>(a, [&a]<std::size_t kRows>(std::size_t r, std::size_t m) -> std::size_t {
    dot_row<Block, kGroups, kHasOffsets, kRows>(a, r, m);
    return 1;
  });
}

template <class Block, std::size_t kGroups>
void dot_groups(const Int8DotArguments& a) {
  (a.offsets ? dot_short_rows<Block, kGroups, true> : dot_short_rows<Block, kGroups, false>)(a);
}

template <class Block>
void dot(const Int8DotArguments& a) noexcept {
  if constexpr (Block::kHasLongGroups) {
    if (a.group_size == 2 * Block::kInputs) return dot_long_groups<Block, 2>(a);
    if (a.group_size == Block::kInputs) return dot_long_groups<Block, 1>(a);
  }
  const std::size_t groups = Block::kInputs / a.group_size;
  if constexpr (Block::kInputs >= 128) {  // groups have 16 values at least
    if (groups >= 8) return dot_groups<Block, 8>(a);
  }
  if constexpr (Block::kInputs >= 64) {
    if (groups >= 4) return dot_groups<Block, 4>(a);
  }
  if (groups >= 2) return dot_groups<Block, 2>(a);
  dot_groups<Block, 1>(a);
}

Ints load_codes(const Byte* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
Ints add_wide_products(Ints sums, Ints weights, Ints x) { return add(sums, _mm256_madd_epi16(weights, x)); }
Ints first_lane(std::int32_t value) { return _mm256_zextsi128_si256(_mm_cvtsi32_si128(value)); }

// Zero where they are not finite. Gives the codes.
Ints round_wide(std::int16_t* to, const float* x, float inverse) {
  const Ints codes = round_values<32767>(load_floats(x) * inverse);
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  return codes;
}

#include "quant/kernels/wide.inc"

}  // namespace

const WideTable kAvx2Wide = {.most_rows = kAnyRows, .quantize = wide::quantize, .dot = wide::dot};
const Int8Table kAvx2Int8 = {
    .quantize = quantize, .arrange = arrange, .dot = {dot<Pairs4>, dot<Pairs8>, dot<PairsOfLevels>}};
const Int8Table kAvx2VnniInt8 = {
    .quantize = quantize, .arrange = arrange, .dot = {dot<Words4>, dot<Words8>, dot<WordsOfLevels>}};

}  // namespace halfbyte::quant::kernels
