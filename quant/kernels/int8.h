// Products in 8-bit integers, and products of many rows by tiles and panels: tables of functions per instruction set,
// in plain C types. As kernels.h, which includes this; for the same files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfbyte::quant::kernels {

using Byte = unsigned char;

enum Float : int { kFloat32, kFloat16, kBfloat16, kFloatCount };

// Inputs are padded with zeros to a multiple of this many values, and lie so far apart.
inline constexpr std::size_t kInputUnit = 128;

// Codes of activations, in groups of 16, 32, 64 or 128 values that share a scale: value = code * scale.
// A group that holds NaN or an infinity has a scale that is not finite, so that it shows in the product.
struct Int8Groups {
  std::size_t n;           // values, a multiple of kInputUnit
  std::size_t group_size;  // 16, 32, 64 or 128
  signed char* codes;      // (n), in natural order
  float* scales;           // (n / group_size): largest magnitude / 127
  std::int32_t* sums;      // (n / group_size), of the codes
};

inline constexpr std::size_t kLineBytes = 64;

// How weight rows are fetched while those before them are multiplied, from front to back.
struct Fetch {
  std::size_t ahead;          // bytes from what is multiplied; with some rows of input at least (bytes_ahead)
  bool is_to_second = false;  // into the second-level cache, instead of as each kernel has it; heeded by kernels of
                              // 4-bit codes for up to four rows of input, but not by `columns.inc`
};
struct Fetches {
  Fetch of_one;                           // row of input
  Fetch of_some, of_some_with_long_rows;  // rows of input; weight rows of kLongRow bytes and more
};
inline constexpr std::size_t kLongRow = 1536;
// With some rows of input: from so many weight rows, which are multiplied together, to what is fetched meanwhile.
static constexpr std::size_t bytes_ahead(const Fetch& fetch, std::size_t rows, std::size_t row_bytes) {
  const std::size_t bytes = rows * row_bytes;
  return bytes < fetch.ahead ? fetch.ahead : bytes;
}

// The scales of a chunk's weight rows lie in runs of a multiple of this many.
inline constexpr std::size_t kScaleUnit = 16;
// Rows whose scales are turned at once, at most.
inline constexpr std::size_t kMostScaleRows = 32;

// Scales where they are stored, of all weight rows. Shape: (rows, groups).
struct StoredScales {
  const Byte* rows;  // null: they have been loaded
  std::size_t row_bytes;
  Float dtype;
  void (*load)(Float dtype, const Byte* source, std::size_t count, float* out) noexcept;
  float* loaded;  // room for kScaleUnit rows, and kScalePadding values
  float* turned;  // room for (groups + kScalePadding, kMostScaleRows)
};

// One matrix of codes times m rows of 8-bit activations. Units: bytes for row_bytes, else elements.
// A product is the sum over the groups g of a row, in order, of fma(float(codes of g * input of g) * input scale of g,
// scale of g, sum so far), where the first factor is exact; it begins with the sum over g of offset * input sum. Panels
// add up in the same order, so that rows of input give the same bits however many there are.
struct Int8DotArguments {
  const Byte* rows;
  std::size_t row_bytes;
  std::size_t begin, end;  // weight rows
  std::size_t in_features;
  std::size_t group_size;     // 16, 32, 64 or 128; of the activations, and of the scales here
  const signed char* levels;  // the sixteen values of codes, -127 to 127; kLevels4 only
  const float* scales;        // (groups, scale_stride): of row scale_begin + r in column r; zeros behind the last, and
                              // kScalePadding finite values at the end
  StoredScales stored;        // instead of scales and offsets; of whole kScaleUnits of rows
  std::size_t scale_begin;    // the weight row that scales and offsets begin with; callers set it to `begin`
  const float* offsets;       // to add to code * scale, as scales; null: none
  std::size_t scale_stride;   // a multiple of kScaleUnit
  std::size_t scale_row_stride;    // from a row's scale to the next row's: 1; products of one row of input with whole
                                   // kScaleUnits of weight rows also take scales as they are stored, (rows, groups),
                                   // with scale_stride 1
  const signed char* input;        // (m, input_stride) as Int8Table::arrange gives it
  std::size_t input_stride;        // at least in_features, rounded up to kInputUnit
  std::size_t group_stride;        // the groups of a row so rounded
  const float* input_scales;       // (m, group_stride) as place_in_set has it; of lanes (groups, width)
  const std::int32_t* code_sums;   // of the input's codes, as input_scales
  const std::int32_t* first_sums;  // LaneInput's; lanes only
  std::size_t m;                   // 1 to kMaxDotRows
  float* scratch_scales;           // (int8_stream_values)
  std::int32_t* scratch_sums;      // (int8_stream_values)
  float* scratch_products;         // (kStreamRows, int8_stream_groups)
  float* output;                   // (m, output_stride): column r - begin for weight row r
  std::size_t output_stride;
  Fetch fetch;
  const Int8DotArguments* beside;  // other weight rows, to be read in turn with these, where m is 1 for both; alike
                                   // but for where all lies. Null: none
};

// Rows of input that are multiplied together: as many eights as there are, then a four, a two and a one. What a set has
// for each group lies together, (groups, rows of the set), and begins where the first row's would without sets.
static constexpr std::size_t place_in_set(std::size_t row, std::size_t all, std::size_t group,
                                          std::size_t group_stride) {
  for (std::size_t first = 0, rows = 8;; rows /= 2) {
    const std::size_t sets = (all - first) / rows, end = first + sets * rows;
    if (row < end) {
      first += (row - first) / rows * rows;
      return first * group_stride + group * rows + (row - first);
    }
    first = end;
  }
}

// A single row of input: weight rows are gone through in whole pieces of kStreamUnit values at most, and the products
// of kStreamRows of them at most wait for each other.
inline constexpr std::size_t kStreamRows = 16, kStreamUnit = 512;

// One row of input without any fetches takes 8 % more time on a Zen 3, and with 4 KB ahead 3 % more than with 16. Two
// rows take 5 to 7 % less with 10 KB than with 4 KB and by way of the second-level cache (Zen 5, AVX2, groups of 128),
// four in lanes 2 % less, eight .5 %. With AVX-512 and one row 10 KB take 2 % less than 16 on a Zen 5 (.7 % while its
// memory gives 50 GB/s), 4 KB 8 % more and 2 % less. All within a process. Pages farther ahead are not touched:
// prefetchers take that for another stream, and a Zen 3 reads matrices 9 to 14 % faster without, a Zen 5 5 %.
inline constexpr Fetches kAvx2Fetches = {{16384}, {10240}, {10240}};
inline constexpr Fetches kAvx512Fetches = {{10240}, {10240}, {10240}};

// In how many places of a matrix a thread reads one row's weights in turn. A core whose prefetchers follow some streams
// gets more from memory with two, far from each other: on a Zen 3 two threads read 20 GB/s instead of 17 to 18, and one
// 11.5 to 14 instead of 10; a step of decode of 1.1 B parameters takes 7 to 9 % less time. Where the two are 32 KB from
// each other it is 1 to 3 %. A Zen 5 loses 8 % with two.
inline constexpr std::size_t kAvx2Streams = 2;

static constexpr std::size_t int8_stream_groups(std::size_t in_features, std::size_t group_size) {
  return (in_features + kStreamUnit - 1) / kStreamUnit * (kStreamUnit / group_size);
}
// Of the input, by groups, with what follows its end.
static constexpr std::size_t int8_stream_values(std::size_t in_features, std::size_t group_size) {
  return int8_stream_groups(in_features, group_size) + kStreamRows * (kInputUnit / group_size);
}

// How 8-bit products take the weights: 4-bit codes less 8, 8-bit codes less 128, or 4-bit codes as levels.
enum Int8Dot : int { kIntegers4, kIntegers8, kLevels4, kInt8DotCount };

// Rows of input in lanes: a vector of `width` words has values of kLaneRows rows, or of LaneTable::rows, each in lanes
// of its own, and zeros in those of rows that are not there.
inline constexpr std::size_t kLaneRows = 8;
// Which row a lane is of, once the lanes that a row has next to each other are added up.
static constexpr std::size_t lane_row(std::size_t lane, std::size_t width) {
  return width == kLaneRows ? lane : lane % 2 + lane / 4 * 2;
}
// Rows of input in lanes, and what sums of products with them begin with, or in the end are added to: the input times
// the negated code of zero, in each lane its own share, which products of unsigned codes have too much (some take it
// off by the sums of the input's codes, and leave it).
template <class Code>
struct LaneInput {
  const Code* steps;
  std::size_t begin, end;  // the codes of a row whose sums are made, multiples of kInputUnit
  std::size_t group_size;
  std::size_t m;             // rows
  std::int32_t* first_sums;  // (groups, runs, LaneTable::width words); runs: 1 to half the lanes
};
using Int8LaneInput = LaneInput<signed char>;
using WideLaneInput = LaneInput<std::int16_t>;
template <class Arguments, class Input>
struct LaneTable {
  void (*dot)(const Arguments& arguments) noexcept = nullptr;  // null: none
  void (*first_sums)(const Input& input) noexcept = nullptr;   // of `input`'s part; null: not needed
  std::size_t width = 0;                                       // sums in a vector
  unsigned faster_for = 0;                                     // bit n: n rows of input
  std::size_t rows = kLaneRows;                                // of input that a step has room for
  std::size_t least_group = 1;                                 // values
  std::size_t step_bytes = width * sizeof(float) / rows;       // of each row
};
// Weight rows are in the lanes (columns.inc): rows of input that are not there cost nothing. With AVX-512 four are
// faster without (Zen 5).
inline constexpr unsigned kAvx512TurnedFor = 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;
inline constexpr unsigned kAvx2TurnedFor = kAvx512TurnedFor | 1 << 4;
// Lanes of three or four rows of input, for groups of kQuadGroup.
inline constexpr unsigned kQuadsFor = 1 << 3 | 1 << 4;
inline constexpr std::size_t kQuadRows = 4, kQuadGroup = 128;

struct Int8Table {
  // Shape of x: (n). Rounds half to even.
  void (*quantize)(const float* x, const Int8Groups& out) noexcept;
  // Brings codes (n) of a row into the order in which dot[way] reads them.
  void (*arrange)(const signed char* codes, std::size_t n, Int8Dot way, signed char* out) noexcept;
  void (*dot[kInt8DotCount])(const Int8DotArguments& arguments) noexcept;
  std::size_t streams = 1;  // places of a matrix of which dot takes one `beside` the other
  Fetches fetches = {};
  // As dot[kIntegers4], but for how the input lies. A step is step_bytes codes of each row, first those of the first
  // half of two vectors' as `arrange` gives them, then as many of the second half, and so on. Scales and sums of codes
  // are (groups, width), first sums as LaneInput has them.
  LaneTable<Int8DotArguments, Int8LaneInput> lanes = {};
  LaneTable<Int8DotArguments, Int8LaneInput> quads = {};  // before `lanes`, of what they are faster for
};

// Many rows of input: weight rows are unpacked kTileRows at a time into a tile, which is multiplied with panels of some
// rows of input each. A step is four bytes of every row: four 8-bit codes, or two bfloat16 values.
inline constexpr std::size_t kTileRows = 32;
inline constexpr std::size_t kStepBytes = 4;

struct TileArguments {
  const Byte* rows;  // packed codes
  std::size_t row_bytes;
  std::size_t count;  // rows that there are, 1 to kTileRows; others become zeros
  std::size_t in_features;
  const float* levels;             // the sixteen values of 4-bit codes
  const signed char* byte_levels;  // those of 8-bit tiles of levels, -127 to 127
  int flip;                        // element k is in field k ^ flip
  Byte* out;                       // (steps, kTileRows, kStepBytes), aligned to 64 bytes
};

struct PanelArguments {
  const Byte* tile;
  std::size_t tiles;       // 1 to PanelInput::tiles; the next one has the next kTileRows scales and offsets,
  std::size_t tile_bytes;  // is so far behind,
  std::size_t out_stride;  // and has products so many elements behind
  const Byte* input;       // (steps, rows, kStepBytes), or as PanelInput has it
  const Byte* next_input;  // about as long, to be brought into the second-level cache meanwhile; null: none
  std::size_t groups;      // steps are groups * steps_per_group
  std::size_t steps_per_group;
  const float* scales;            // (groups, kTileRows), scale_stride apart
  const float* offsets;           // (offset_groups, kTileRows), as scales, to add to the tile's values times scales:
                                  // what the products begin with, where is_first; null: none
  std::size_t scale_stride;       // elements
  std::size_t offset_groups;      // of the whole rows
  int code_offset;                // to subtract from the tile's codes; 8-bit panels only
  const float* input_scales;      // (groups, rows); 8-bit panels only
  const std::int32_t* code_sums;  // (groups, rows), of the input's codes; 8-bit panels only
  // (groups, runs of a group, rows), of 4-bit codes, where PanelTable::first_sums makes them.
  const std::int32_t* first_sums;
  const float* input_sums;      // (offset_groups, rows), of the input's values; with offsets only
  std::size_t rows;             // 1 to PanelInput::most_rows
  const Byte* prefetch;         // what to bring into the second-level cache meanwhile
  std::size_t prefetch_bytes;   // of it, a step; 0: nothing
  std::size_t prefetch_stride;  // from what comes with one tile to what comes with the next
  bool is_first;                // else the products are added to what is there
  float* out;                   // (rows, kTileRows)
};
inline constexpr std::size_t kPanelRows = 12;
// Steps of a group, or as many as it has, whose products some panels add up in 16 bits.
inline constexpr std::size_t kPanelRunSteps = 16;

// How kernels take the input of PanelArguments.
struct PanelInput {
  std::size_t most_rows = kPanelRows;  // of a panel
  std::size_t block_steps = 1;         // groups are whole blocks of so many steps
  std::size_t tiles = 1;               // that are multiplied with a panel, one after another, while it is in cache
  std::size_t tile_bytes = 32 << 10;   // of a tile at most, where groups allow it
  // Brings steps (count, steps) of 4 bytes, rows row_bytes apart, into (blocks, count, block_steps). Null: interleave.
  void (*arrange)(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t steps, Byte* out) = nullptr;
};

// The order of values in steps: bfloat16 panels have two a step as they come, 8-bit panels four; but of each eight that
// multiply 4-bit codes, 8-bit panels have the even ones first, then the odd ones.
struct PanelTable {
  PanelInput input = {};
  // From so many rows of input on, unpacking is cheaper than reading each weight row in place (measured on Zen 5),
  // where they have no lanes. Indexed by Int8Dot.
  std::size_t least_rows[kInt8DotCount];
  // Indexed by Int8Dot. A bfloat16 tile holds codes less their offset, or levels rounded to bfloat16; an 8-bit tile
  // codes, or levels plus 128.
  void (*unpack[kInt8DotCount])(const TileArguments& arguments) noexcept;
  // What sums of products with 4-bit codes begin with. Shapes: steps (runs, run_steps, rows, kStepBytes), out (runs,
  // rows); run_steps: kPanelRunSteps at most. Null: not needed.
  void (*first_sums)(const Byte* steps, std::size_t rows, std::size_t runs, std::size_t run_steps,
                     std::int32_t* out) noexcept = nullptr;
  void (*multiply)(const PanelArguments& arguments) noexcept;
  // Word w of row r goes to out[w * out_words + r]. Shapes: rows (count, words) of 4 bytes, 1 to 16 or most_rows of
  // them, row_bytes apart; out (words, out_words).
  void (*interleave)(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t words, Byte* out,
                     std::size_t out_words) noexcept;
  // Brings n codes, a multiple of kInputUnit, into the order of steps that multiply 4-bit codes.
  void (*split_pairs)(signed char* codes, std::size_t n) noexcept;
};

// Products that sum over the rows of a matrix, a tile being kTileRows columns of some of its rows: a step is one
// float32 value of each column, or two bfloat16 ones, of one row and the next. They are multiplied as PanelTable's are.
struct ColumnArguments {
  const Byte* rows;  // 4-bit codes, from the first column on
  std::size_t row_bytes;
  std::size_t count;         // rows; an odd one is paired with zeros
  std::size_t columns;       // of all tiles; others, to fill the last one, are finite
  const float* scales;       // (count, scale_stride), from the first column's group on
  const float* offsets;      // to add to level * scale, as scales; null: none
  std::size_t scale_stride;  // elements
  std::size_t group_size;    // from the first column on; a multiple of 16, or at least `columns`
  const float* levels;       // the sixteen values
  int flip;                  // element k is in field k ^ flip
  Byte* out;                 // (tiles, tile_bytes): (steps, kTileRows, kStepBytes), aligned to 64 bytes
  std::size_t tile_bytes;
};

struct ColumnTable {
  PanelInput input = {};
  std::size_t values_per_step;  // 1: float32, 2: bfloat16
  // Null: the values come by way of Table::unpack and `pack`.
  void (*unpack4)(const ColumnArguments& arguments) noexcept;
  // Rounds the values of two rows, of which the second may be null, zeros, to one step of each tile. Null: steps hold
  // values of one row as they are.
  void (*pack)(const float* first, const float* second, std::size_t columns, Byte* out,
               std::size_t tile_bytes) noexcept;
  void (*multiply)(const PanelArguments& arguments) noexcept;
  // As PanelTable has it.
  void (*interleave)(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t words, Byte* out,
                     std::size_t out_words) noexcept;
};

// Products of tiles that another level unpacks, in registers that hold blocks of steps.
struct BlockProducts {
  PanelInput input;
  void (*multiply_panels)(const PanelArguments& arguments) noexcept;       // as PanelTable's
  void (*multiply_int8_panels)(const PanelArguments& arguments) noexcept;  // the same of 8-bit panels, to the bit
  void (*multiply_columns)(const PanelArguments& arguments) noexcept;      // as ColumnTable's
  void (*interleave)(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t words, Byte* out,
                     std::size_t out_words) noexcept;
};

// 8-bit codes times activations in 16 bits, in groups of 32, 64 or 128: the activations' rounding is 256 times finer
// than that of 8 bits, and sums are exact.
struct WideGroups {
  std::size_t n;           // values, a multiple of kInputUnit
  std::size_t group_size;  // 32, 64 or 128
  std::int16_t* codes;     // (n)
  float* scales;           // (n / group_size): largest magnitude / 32767
  std::int32_t* sums;      // (n / group_size), of the codes times the weights' offset of 128, negated
};

// A product is the sum over the groups of a row, in order, as Int8DotArguments has it, but without offsets; the integer
// that a group gives is exact, and rounded once as it becomes a float.
struct WideDotArguments {
  const Byte* rows;
  std::size_t row_bytes;
  std::size_t begin, end;  // weight rows
  std::size_t in_features;
  std::size_t group_size;          // 32, 64 or 128; of the activations, and of the scales here
  const float* scales;             // (groups, scale_stride), as Int8DotArguments has them
  std::size_t scale_stride;        // a multiple of kScaleUnit
  std::size_t scale_row_stride;    // as Int8DotArguments has it
  StoredScales stored;             // instead of scales: of one row of input, and with lanes; of whole kScaleUnits of
                                   // weight rows
  const std::int16_t* input;       // (m, input_stride), zeros beyond in_features
  std::size_t input_stride;        // a multiple of kInputUnit
  const float* input_scales;       // (m, all groups) as place_in_set has it; of lanes (groups, width)
  const std::int32_t* input_sums;  // as input_scales: WideGroups::sums; not of lanes
  const std::int32_t* first_sums;  // LaneInput's; lanes only
  std::size_t m;                   // 1 to kMaxDotRows
  float* output;                   // (m, output_stride): column r - begin for weight row r
  std::size_t output_stride;
  Fetch fetch;
  const WideDotArguments* beside;  // as Int8DotArguments has it
};

inline constexpr std::size_t kAnyRows = ~std::size_t{0};

struct WideTable {
  std::size_t most_rows;  // of input: for more, panels of bfloat16 values are faster
  // Shape of x: (n). Rounds half to even. A group that holds NaN or an infinity has a scale that is not finite.
  void (*quantize)(const float* x, const WideGroups& out) noexcept;
  void (*dot)(const WideDotArguments& arguments) noexcept;
  std::size_t streams = 1;  // as Int8Table has it
  Fetches fetches = {};
  // As Int8Table has them, of steps that are each row's next codes; of each four the first and the third come first.
  LaneTable<WideDotArguments, WideLaneInput> lanes = {};
};

extern const Int8Table kRefInt8;
extern const WideTable kRefWide;
extern const ColumnTable kRefColumns;
#ifdef HALFBYTE_X86
extern const Int8Table kAvx2Int8, kAvx2VnniInt8, kAvx512Int8;
// What their `lanes` and `quads` have.
void avx2_dot_lanes(const Int8DotArguments& arguments) noexcept;
void avx2_dot_quads(const Int8DotArguments& arguments) noexcept;
void avx2_vnni_dot_quads(const Int8DotArguments& arguments) noexcept;
void avx2_quad_first_sums(const Int8LaneInput& input) noexcept;
void avx2_first_sums(const Int8LaneInput& input) noexcept;
void avx2_vnni_dot_lanes(const Int8DotArguments& arguments) noexcept;
void avx512_dot_columns(const Int8DotArguments& arguments) noexcept;
void avx2_dot_wide_lanes(const WideDotArguments& arguments) noexcept;
void avx2_wide_first_sums(const WideLaneInput& input) noexcept;
extern const WideTable kAvx2Wide, kAvx512Wide;
extern const PanelTable kAvx2Int8Panels, kAvx2VnniInt8Panels, kAvx2Bfloat16Panels;
extern const PanelTable kAvx512Int8Panels, kAvx512Bfloat16Panels;
extern const ColumnTable kAvx2Columns, kAvx512Columns, kAvx512Bfloat16Columns;
extern const BlockProducts kAmxProducts;
// What products are where is_first: zeros, or of the offsets.
void avx512_begin_products(const PanelArguments& arguments) noexcept;
#endif

}  // namespace halfbyte::quant::kernels
