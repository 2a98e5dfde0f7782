// The table of instruction-set-specific functions, in plain C types. For quant/*.cpp and the kernel files only.
//
// A kernel file is compiled with flags of its own, so it includes nothing that defines inline functions: this header
// and int8.h, <cstddef>, <cstdint> and intrinsics. Every function is noexcept, checks nothing and takes any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/kernels/int8.h"

namespace halfbyte::quant::kernels {

// Groups are quantised kLanes at a time, one group a lane, so that a group's sums are plain sums in element order and
// every instruction set gives the same bits. A tile holds them transposed: element k of lane l is tile[k * kLanes + l].
inline constexpr int kLanes = 16;
// A tile's length is rounded up to this many elements; what is added is zero.
inline constexpr std::size_t kTileUnit = 16;
// measure and encode sum over at most this many elements a call.
inline constexpr std::size_t kMaxTerms = 512;

// The values of a code book in ascending order. middle[i] is half-way from value[i] to value[i + 1], the last one is
// infinite: a number's level is the count of middles below it.
struct Levels {
  float value[16], middle[16];
  std::uint32_t code[16];
};

// How values in units of the scale become codes, with a number `low` of each lane's own: the nearest integer from `low`
// to low + span, or the nearest level of the value less `low`, which is then a shift of all levels.
struct Coding {
  int bits;
  int flip;              // element j of a word goes into field j ^ flip
  float span;            // integers only
  const Levels* levels;  // null: integers
};

// A tile of weights and what the error of each counts. Shapes: (n, kLanes).
struct Weighed {
  const float* values;
  const float* importance;  // from 0 on; null: all count 1
};

// How far one group is from its codes, in units of the scale: t = w / scale (less the shift of levels), q = its code,
// h = its importance. Shapes: (count, kLanes).
struct Errors {
  float* squared;  // sum h (t - q)^2
  float* slope;    // sum h (t - q) q
  float* codes;    // sum h q^2
};

// Candidate scales with their reciprocals and errors. Shapes: (count, kLanes).
struct Candidates {
  const float* scale;
  const float* inverse;  // 0: not to be used
  const float* low;      // least integer code: minus the zero point
  Errors errors;
};

// The best scale so far. Shapes: (kLanes).
struct Best {
  float* scale;
  float* inverse;
  float* low;
  float* error;  // sum (t - q)^2, in units of the base scale
};

// The scale to try next. Shapes: (kLanes).
struct Refined {
  float* scale;
  float* low;
};

// What a row's groups have in common where a group's scale is a multiple of the row's.
struct MultiplesOf {
  float row_scale;
  float least, most;  // of the multiples
  float low, high;    // the ends of the code book, the least and the largest value
};

// What encode reports per lane, in units of the scale. Shape of each: (kLanes).
struct Encoded {
  float* squares;  // sum t^2
  float* squared;  // sum (t - q)^2
  float* max_abs;  // max |t - q|
};

// A byte of a group's scale: its lowest `bits` bits say how many times `step` shifts the code book, the rest is the
// multiple in two's complement.
struct ShiftBits {
  int bits;
  float step;
};

// One matrix of codes or dense floats times m rows of activations. Units: bytes for row_bytes, else elements.
struct DotArguments {
  const Byte* rows;
  std::size_t row_bytes;
  std::size_t begin, end;  // weight rows
  std::size_t in_features;
  const float* scales;       // (end - begin, scale_stride), of row `begin` on; null for dense rows
  std::size_t scale_stride;  // at least in_features / group_size + kScalePadding
  std::size_t group_size;    // 16, 32, 64, 128 or in_features
  const float* offsets;      // of 4-bit codes, to add to level * scale, as scales; null: none
  const float* levels;       // the sixteen values of 4-bit codes
  const float* input_sums;   // with offsets: (m, input_stride / codes per word), the sums over each word's codes
  const float* input;        // (m, input_stride) in the order of Table::words_per_block, zero beyond in_features;
                             // fastest when aligned to 64 bytes
  std::size_t input_stride;  // a multiple of kInputUnit
  std::size_t m;             // 1 to kMaxDotRows
  float* output;             // (m, output_stride): column r - begin for weight row r
  std::size_t output_stride;
};
inline constexpr std::size_t kMaxDotRows = 8;
// A kernel may read this many scales beyond a row's own; they must be finite.
inline constexpr std::size_t kScalePadding = 16;

// One packed row to values. A value is (code's value - zero) * scale + offset of its group, rounded after each step.
struct UnpackArguments {
  const Byte* row;
  const float* scales;   // (groups)
  const float* zeros;    // (groups); null: none
  const float* offsets;  // (groups); null: none
  const float* levels;   // the sixteen values of 4-bit codes
  int flip;              // element k is in field k ^ flip
  std::size_t n;         // elements
  std::size_t group_size;
  float* out;
};

enum Dot : int { kDotInt4, kDotInt8, kDotFloat32, kDotFloat16, kDotBfloat16, kDotCount };

// Quantisation of a tile.
struct QuantizeTable {
  // Transposes `lanes` runs of n floats, run l at source + l * stride bytes, into a tile (n rounded up, kLanes);
  // missing lanes and elements are zero. False when a value is not finite.
  bool (*load_tile)(Float from, const Byte* source, std::size_t stride, std::size_t lanes, std::size_t n,
                    float* tile) noexcept;
  // Smallest and largest value of each lane. n is a multiple of kTileUnit in this and the next two.
  void (*extremes)(const float* tile, std::size_t n, float* low, float* high) noexcept;
  // For each of `count` candidate reciprocals and lows (count, kLanes): t = w * inverse, for levels w * inverse - low
  // rounded once; q = its code's value; integers are rounded half to even. Where out.slope is null, out.squared alone
  // is filled.
  void (*measure)(const Weighed& tile, std::size_t n, const float* inverse, const float* low, std::size_t count,
                  const Coding& coding, Errors out) noexcept;
  // Rounds scales (count, kLanes) to their stored dtype, not beyond +-largest (a value of that dtype), and inverts
  // them; both are 0 where the rounded scale has no finite reciprocal.
  void (*round_scales)(Float to, float largest, std::size_t count, float* scale, float* inverse) noexcept;
  // Keeps in `best` the candidate of least error, the first of equals, if it is less than best's own. An error counts
  // (scale * base_inverse)^2. Of the codes of the best candidate after a least-squares fit, `refined` gets that scale.
  void (*choose)(const Candidates& candidates, std::size_t count, const float* base_inverse, Best best,
                 Refined refined) noexcept;
  // Wanted multiples (count, kLanes) to whole ones within bounds, half to even, of which none is 0: what rounds to it
  // becomes 1 with its sign. `inverse` is the reciprocal of multiple * row_scale, or 0 where that or the product of the
  // scale with a value of the code book, shifted by `low`, is not finite.
  void (*round_multiples)(const MultiplesOf& row, std::size_t count, float* multiple, const float* low,
                          float* inverse) noexcept;
  // The candidates are `runs` runs of `count`. The best of each run, the first of equals, is put where it belongs in
  // `first` and `second`, of which the former has no larger error. Errors count scale^2. Only errors.squared is read.
  void (*choose_two)(const Candidates& candidates, std::size_t runs, std::size_t count, Best first,
                     Best second) noexcept;
  // Codes, integers less `low`, in coding.bits bits each: words (n * bits / 32, kLanes). Shapes: inverse, low (kLanes).
  void (*encode)(const float* tile, std::size_t n, const float* inverse, const float* low, const Coding& coding,
                 std::uint32_t* words, Encoded out) noexcept;
};

// activation_kernels.h has these.
struct ActivationTable;
struct AttentionTable;
struct Bfloat16AttentionTable;
struct Int8AttentionTable;
struct WideAttentionTable;
extern const ActivationTable kRefActivations, kAvx2Activations, kAvx512Activations;
extern const AttentionTable kRefAttention, kAvx2Attention, kAvx512Attention;
extern const Bfloat16AttentionTable kAvx512Bfloat16Attention;
extern const WideAttentionTable kAvx2WideAttention;
extern const Int8AttentionTable kAvx2Int8Attention, kAvx2VnniInt8Attention, kAvx512Int8Attention;

struct Table {
  const char* name;
  bool with_onednn;  // its brgemm needs AVX-512, and a lesser level stands for a CPU without
  const QuantizeTable* quantize;
  const ActivationTable* activations;
  const AttentionTable* attention;
  const Bfloat16AttentionTable* bfloat16_attention;  // null: as wide_attention or floats
  const WideAttentionTable* wide_attention;          // without bfloat16_attention; null: as floats
  const Int8AttentionTable* int8_attention;          // of keys and values in 8 bits; null: they are expanded first
  const Int8Table* int8;                             // products of few rows in 8-bit integers
  const WideTable* wide;                             // of 8-bit codes and activations in 16 bits
  const PanelTable* int8_panels;                     // of many rows; null: none
  const PanelTable* int8_block_panels;      // the same, of groups of whole blocks of steps; null: none that is faster
  const PanelTable* bfloat16_panels;        // the same in bfloat16; null: none
  const PanelTable* bfloat16_block_panels;  // the same, of groups of whole blocks of steps; null: none that is faster
  const ColumnTable* columns;               // products that sum over rows, in float32
  const ColumnTable* bfloat16_columns;      // the same in bfloat16; null: none that is faster
  bool is_int8_fast;                        // than floats
  // The order of the activations for coded rows: in each run of words_per_block words of codes, value j * words + i
  // belongs to field j of word i. 1 is the order of the fields.
  std::size_t words_per_block;
  // In how many places of a matrix a thread reads in turn on this CPU, where the kernels take as many.
  std::size_t streams = 1;
  const Fetches* fetches = nullptr;  // on this CPU; null: as the kernels have them

  void (*load)(Float from, const Byte* source, std::size_t count, float* out) noexcept;
  void (*store)(Float to, const float* source, std::size_t count, Byte* out) noexcept;
  // The scales and offsets of one row's groups, from bytes as RowScaleSearch makes them: scale = multiple * row_scale;
  // offset = times * shift * scale where that is not 0, else -0, which added changes nothing. All is exact: a multiple
  // has 7 bits at most, a row's scale 8, a shift 8.
  void (*expand_scales)(const signed char* bytes, std::size_t count, float row_scale, ShiftBits shift, float* scales,
                        float* offsets) noexcept;
  // Index of the first NaN or infinity, or count.
  std::size_t (*first_non_finite)(Float from, const Byte* source, std::size_t count) noexcept;

  // Values in natural order, scale k / group_size for value k. group_size is a multiple of 16 or at least n; `ref`
  // takes any. Indexed by kDotInt4, kDotInt8.
  void (*unpack[2])(const UnpackArguments& arguments) noexcept;
  void (*dot[kDotCount])(const DotArguments& arguments) noexcept;
};

extern const QuantizeTable kRefQuantize, kAvx2Quantize, kAvx512Quantize;
extern const Table kRef;
#ifdef HALFBYTE_X86
extern const Table kAvx2;
extern const Table kAvx512;
#endif

// One instruction-set level. Best first in levels(); ref is last and always there.
struct Level {
  const char* name;
  const Table* (*table)();
  bool (*is_available)();
};

const Level* levels(std::size_t* count) noexcept;
// The table of a level by name. Errors: Error(kUnsupported) for an unknown name or a level that this CPU lacks.
const Table& kernels(const char* level);
// The best level, or the one that HALFBYTE_ISA names; decided at the first call. Errors: as kernels(level).
const Table& kernels();

}  // namespace halfbyte::quant::kernels
