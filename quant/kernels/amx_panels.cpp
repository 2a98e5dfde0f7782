// Products of many rows in bfloat16 with AMX, whose tile registers hold sixteen rows of 64 bytes. Called only where the
// process may use them.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

constexpr std::size_t kTileBytes = kTileRows * kStepBytes;  // of a step
constexpr std::size_t kRows = 16, kRowBytes = 64;           // of a register
constexpr std::size_t kMostRows = 2 * kRows;
constexpr std::size_t kBlockSteps = kRowBytes / kStepBytes;
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

// Shapes: tile (steps, kTileRows, kStepBytes), input (steps / kBlockSteps, rows, kRowBytes).
template <bool kHasSecond>
inline __attribute__((always_inline)) void add_products(const Byte* tile, const Byte* input, std::size_t rows,
                                                        std::size_t steps) {
  for (std::size_t step = 0; step < steps; step += kBlockSteps) {
    _tile_loadd(6, tile, kTileBytes);
    _tile_loadd(4, input, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, tile + kRowBytes, kTileBytes);
    _tile_dpbf16ps(1, 4, 7);
    if (kHasSecond) {
      _tile_loadd(5, input + kRows * kRowBytes, kRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    tile += kBlockSteps * kTileBytes;
    input += rows * kRowBytes;
  }
}

// What is unpacked next, while a group is multiplied.
void prefetch(const PanelArguments& a, std::size_t group) {
  const std::size_t bytes = a.steps_per_group * a.prefetch_bytes;
  for (std::size_t at = 0; at < bytes; at += 64) _mm_prefetch(a.prefetch + group * bytes + at, _MM_HINT_T1);
}

template <bool kHasSecond>
void multiply_groups(const PanelArguments& a) {
  alignas(64) float sums[kMostRows * kTileRows];
  for (std::size_t group = 0; group < a.groups; ++group) {
    const std::size_t first = group * a.steps_per_group;
    prefetch(a, group);
    clear_sums<kHasSecond>();
    add_products<kHasSecond>(a.tile + first * kTileBytes, a.input + first * a.rows * kStepBytes, a.rows,
                             a.steps_per_group);
    store_sums<kHasSecond>(sums);
    const __m512 one = _mm512_loadu_ps(a.scales + group * kTileRows);
    const __m512 two = _mm512_loadu_ps(a.scales + group * kTileRows + kRows);
    for (std::size_t m = 0; m < a.rows; ++m) {
      float *const out = a.out + m * kTileRows, *const sum = sums + m * kTileRows;
      _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_load_ps(sum), one, _mm512_loadu_ps(out)));
      _mm512_storeu_ps(out + kRows, _mm512_fmadd_ps(_mm512_load_ps(sum + kRows), two, _mm512_loadu_ps(out + kRows)));
    }
  }
}

void multiply_panels(const PanelArguments& a) noexcept {
  if (a.is_first) avx512_begin_products(a);
  configure(a.rows);
  a.rows > kRows ? multiply_groups<true>(a) : multiply_groups<false>(a);
  _tile_release();
}

template <bool kHasSecond>
void multiply_rows(const PanelArguments& a) {
  a.is_first ? clear_sums<kHasSecond>() : load_sums<kHasSecond>(a.out);
  add_products<kHasSecond>(a.tile, a.input, a.rows, a.groups * a.steps_per_group);
  store_sums<kHasSecond>(a.out);
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

const BlockProducts kAmxProducts = {.input = {kMostRows, kBlockSteps, arrange},
                                    .multiply_panels = multiply_panels,
                                    .multiply_columns = multiply_columns,
                                    .interleave = interleave};

}  // namespace halfbyte::quant::kernels
