// Products of many rows with AMX, in bfloat16 or 8-bit integers, whose tile registers hold sixteen rows of 64 bytes.
// Called only where the process may use them.
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers read a variable before it is set (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

constexpr std::size_t kTileBytes = kTileRows * kStepBytes;  // of a step
constexpr std::size_t kRows = 16, kRowBytes = 64;           // of a register
constexpr std::size_t kMostRows = 2 * kRows;
constexpr std::size_t kBlockSteps = kRowBytes / kStepBytes;
constexpr std::size_t kTiles = 8, kTileRoom = 16 << 10;
constexpr std::size_t kLine = 64;
constexpr std::size_t kSumBytes = kTileRows * sizeof(float);

// Source: Intel's Software Developer's Manual, LDTILECFG.
struct alignas(64) Configuration {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {};
  unsigned char rows[16] = {};
};

// Registers 0 and 1 are sums of the first sixteen rows of input, 2 and 3 of those after; 4 and 5 are input, 6 and 7 the
// weights' tile. Tile registers that are not there must have no bytes either.
void configure(std::size_t rows) {
  const auto first = static_cast<unsigned char>(rows < kRows ? rows : kRows);
  const auto second = static_cast<unsigned char>(rows - first);
  const unsigned char of_each[] = {first, first, second, second, first, second, kRows, kRows};
  Configuration chosen;
  for (std::size_t i = 0; i < 8; ++i) {
    chosen.rows[i] = of_each[i];
    chosen.row_bytes[i] = of_each[i] == 0 ? 0 : kRowBytes;
  }
  asm volatile("" : : "r"(&chosen) : "memory");  // GCC 12's intrinsic says that it reads the first eight bytes
  _tile_loadconfig(&chosen);
}

template <bool kHasSecond>
inline __attribute__((always_inline)) void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if (kHasSecond) _tile_zero(2);
  if (kHasSecond) _tile_zero(3);
}

// Shape: (rows, kTileRows).
template <bool kHasSecond>
inline __attribute__((always_inline)) void load_sums(const float* sums) {
  _tile_loadd(0, sums, kSumBytes);
  _tile_loadd(1, sums + kRows, kSumBytes);
  if (kHasSecond) _tile_loadd(2, sums + kRows * kTileRows, kSumBytes);
  if (kHasSecond) _tile_loadd(3, sums + kRows * kTileRows + kRows, kSumBytes);
}

template <bool kHasSecond>
inline __attribute__((always_inline)) void store_sums(float* sums) {
  _tile_stored(0, sums, kSumBytes);
  _tile_stored(1, sums + kRows, kSumBytes);
  if (kHasSecond) _tile_stored(2, sums + kRows * kTileRows, kSumBytes);
  if (kHasSecond) _tile_stored(3, sums + kRows * kTileRows + kRows, kSumBytes);
}

// What is wanted next, brought into the second-level cache by and by: `lines` of it a block.
struct Ahead {
  const Byte* next;
  std::size_t lines;

  void fetch() {
    for (std::size_t i = 0; i < lines; ++i, next += kLine) _mm_prefetch(next, _MM_HINT_T1);
  }
};

// All tiles together fetch the next input.
Ahead next_input(const PanelArguments& a) {
  return {a.next_input, a.next_input ? (a.rows + a.tiles - 1) / a.tiles : 0};
}

// What registers 4 to 7 hold, and what the sums of a group become: sixteen products of row m of input.
struct Bfloat16 {
  static void add_first() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void add_second() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  static __m512 value(const PanelArguments&, const void* sums, std::size_t, std::size_t) {
    return _mm512_load_ps(sums);
  }
};

// Codes of the weights are 0 to 255, those of the input signed. As kAvx512Int8Panels has it, to the bit.
struct Int8 {
  static void add_first() {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  }
  static void add_second() {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  static __m512 value(const PanelArguments& a, const void* sums, std::size_t group, std::size_t m) {
    const std::size_t at = group * a.rows + m;
    const __m512i offset = _mm512_set1_epi32(-a.code_offset * a.code_sums[at]);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(sums), offset)),
                         _mm512_set1_ps(a.input_scales[at]));
  }
};

// Shapes: tile (kBlockSteps, kTileRows, kStepBytes), input (rows, kRowBytes).
template <class Products, bool kHasSecond>
inline __attribute__((always_inline)) void add_block(const Byte* tile, const Byte* input) {
  _tile_loadd(6, tile, kTileBytes);
  _tile_loadd(4, input, kRowBytes);
  _tile_loadd(7, tile + kRowBytes, kTileBytes);
  Products::add_first();
  if (!kHasSecond) return;
  _tile_loadd(5, input + kRows * kRowBytes, kRowBytes);
  Products::add_second();
}

// Codes that are unpacked after these tiles, while a group is multiplied.
void prefetch_codes(const PanelArguments& a, std::size_t tile, std::size_t group) {
  const std::size_t bytes = a.steps_per_group * a.prefetch_bytes;
  const Byte* const from = a.prefetch + tile * a.prefetch_stride + group * bytes;
  for (std::size_t at = 0; at < bytes; at += kLine) _mm_prefetch(from + at, _MM_HINT_T1);
}

// The sums of one group of a tile (rows, kTileRows), to be scaled and added to its products, or to be the first of
// them.
template <class Products>
struct Sums {
  const float* sums;  // or whole numbers
  std::size_t tile, group, rows;
  bool is_first;

  void add_to(const PanelArguments& a) const { is_first ? add_to<true>(a) : add_to<false>(a); }

  template <bool kIsFirst>
  void add_to(const PanelArguments& a) const {
    const float* const scales = a.scales + tile * kTileRows + group * a.scale_stride;
    const __m512 scale[] = {_mm512_loadu_ps(scales), _mm512_loadu_ps(scales + kRows)};
    float* const out = a.out + tile * a.out_stride;
    for (std::size_t m = 0; m < rows; ++m) {
      for (std::size_t half = 0; half < 2; ++half) {
        const std::size_t at = m * kTileRows + half * kRows;
        const __m512 value = Products::value(a, sums + at, group, m);
        _mm512_storeu_ps(out + at, kIsFirst ? _mm512_mul_ps(value, scale[half])
                                            : _mm512_fmadd_ps(value, scale[half], _mm512_loadu_ps(out + at)));
      }
    }
  }
};

// A group's sums are scaled while the next one is multiplied: tile registers and vectors work at once.
template <class Products, bool kHasSecond>
void multiply_groups(const PanelArguments& a, bool has_products) {
  alignas(64) float buffers[2][kMostRows * kTileRows];
  const std::size_t blocks = a.steps_per_group / kBlockSteps;
  Sums<Products> last{};
  Ahead ahead = next_input(a);
  for (std::size_t i = 0; i < a.tiles; ++i) {
    const Byte *tile = a.tile + i * a.tile_bytes, *input = a.input;
    for (std::size_t group = 0; group < a.groups; ++group) {
      prefetch_codes(a, i, group);
      clear_sums<kHasSecond>();
      for (std::size_t block = 0; block < blocks; ++block) {
        ahead.fetch();
        add_block<Products, kHasSecond>(tile, input);
        tile += kBlockSteps * kTileBytes;
        input += a.rows * kRowBytes;
      }
      float* const sums = buffers[(i * a.groups + group) % 2];
      last.add_to(a);
      store_sums<kHasSecond>(sums);
      last = {sums, i, group, a.rows, !has_products && group == 0};
    }
  }
  last.add_to(a);
}

void begin_products(const PanelArguments& a) {
  PanelArguments one = a;
  for (std::size_t i = 0; i < a.tiles; ++i, one.out += a.out_stride, one.offsets += kTileRows)
    avx512_begin_products(one);
}

template <class Products>
void multiply_panels(const PanelArguments& a) noexcept {
  const bool has_offsets = a.is_first && a.offsets;
  if (has_offsets) begin_products(a);
  configure(a.rows);
  const bool has_products = has_offsets || !a.is_first;
  a.rows > kRows ? multiply_groups<Products, true>(a, has_products) : multiply_groups<Products, false>(a, has_products);
  _tile_release();
}

template <bool kHasSecond>
void multiply_rows(const PanelArguments& a) {
  Ahead ahead = next_input(a);
  for (std::size_t i = 0; i < a.tiles; ++i) {
    const Byte *tile = a.tile + i * a.tile_bytes, *input = a.input;
    float* const out = a.out + i * a.out_stride;
    a.is_first ? clear_sums<kHasSecond>() : load_sums<kHasSecond>(out);
    for (std::size_t step = 0; step < a.groups * a.steps_per_group; step += kBlockSteps) {
      ahead.fetch();
      add_block<Bfloat16, kHasSecond>(tile, input);
      tile += kBlockSteps * kTileBytes;
      input += a.rows * kRowBytes;
    }
    store_sums<kHasSecond>(out);
  }
}

// There are no scales but ones.
void multiply_columns(const PanelArguments& a) noexcept {
  configure(a.rows);
  a.rows > kRows ? multiply_rows<true>(a) : multiply_rows<false>(a);
  _tile_release();
}

void arrange(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t steps, Byte* out) noexcept {
  for (std::size_t first = 0; first < steps; first += kBlockSteps) {
    for (std::size_t r = 0; r < count; ++r, out += kRowBytes) {
      _mm512_storeu_si512(out, _mm512_loadu_si512(rows + r * row_bytes + first * kStepBytes));
    }
  }
}

void interleave(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t words, Byte* out,
                std::size_t out_words) noexcept {
  for (std::size_t first = 0; first < count; first += kRows) {
    kAvx512Bfloat16Panels.interleave(rows + first * row_bytes, row_bytes, count - first < kRows ? count - first : kRows,
                                     words, out + first * 4, out_words);
  }
}

}  // namespace

const BlockProducts kAmxProducts = {.input = {.most_rows = kMostRows,
                                              .block_steps = kBlockSteps,
                                              .tiles = kTiles,
                                              .tile_bytes = kTileRoom,
                                              .arrange = arrange},
                                    .multiply_panels = multiply_panels<Bfloat16>,
                                    .multiply_int8_panels = multiply_panels<Int8>,
                                    .multiply_columns = multiply_columns,
                                    .interleave = interleave};

}  // namespace halfbyte::quant::kernels
