// The product of activations with a weight matrix that stays as it is stored: packed codes, or dense half rows.
// Needs no LibTorch; the LibTorch operators of quant/operators call this on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <halfbyte/dtype.h>
#include <halfbyte/scheme.h>

namespace halfbyte::quant {

// A weight matrix (out_features, in_features), row-major, where it was mapped. Nothing need be aligned.
struct WeightMatrix {
  const Scheme* scheme = nullptr;        // null: dense rows of dense_dtype
  Dtype dense_dtype = Dtype::kFloat32;   // float32, float16 or bfloat16
  const std::byte* rows = nullptr;       // packed codes (packed_row_bytes a row) or dense values
  const std::byte* scales = nullptr;     // (out_features, in_features / group_size); null for dense rows
  Dtype scale_dtype = Dtype::kBfloat16;  // float32, float16 or bfloat16; int8: bytes, with row scales
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
  std::int64_t group_size = 0;  // in_features for one scale a row
  // Of schemes that have them: words (zero_point_words, groups), row r in field (first_row + r) % 8. `first_row` is
  // that of rows[0] in the whole matrix, and zero_points begin with the word that holds it.
  const std::byte* zero_points = nullptr;
  std::int64_t first_row = 0;
  const std::byte* offsets = nullptr;     // of schemes that have them, as scales
  const std::byte* row_scales = nullptr;  // of schemes that have them, in bfloat16: (out_features)

  std::int64_t row_bytes() const noexcept {
    return scheme ? packed_row_bytes(*scheme, in_features) : in_features * size_bytes(dense_dtype);
  }
  std::int64_t groups() const noexcept { return scheme ? in_features / group_size : 0; }
};

// Where products want the bytes of a part; null: they take no such part.
const std::byte* WeightMatrix::*operand_of(Part part) noexcept;

// How products with packed codes are computed. Dense rows, and code books whose values are no small whole numbers (nf4,
// fp4), are always multiplied in floats.
enum class Arithmetic : std::uint8_t {
  kFloat,  // codes are dequantised in registers, sums are accumulated in float32
  kInt8,   // the activation is rounded to 8 bits, group by group; within a group, sums are exact integers
  kMixed,  // kInt8 for 4-bit codes; 8-bit ones, which somebody chose to lose next to nothing, meet activations in 16
           // bits or, many rows at a time, bfloat16
};
std::string_view name(Arithmetic arithmetic) noexcept;  // "float", "int8", "mixed"
// Whether this CPU multiplies 8-bit integers faster than floats, with the kernels in use.
bool is_int8_fast();
// Whether products of many rows with dense bfloat16 ones take less time than in float32.
bool is_bfloat16_fast();

// Dense rows of activations. Shapes: input (rows, in_features), output (rows, out_features), bias (out_features).
// Dtypes: float32, float16 or bfloat16, each on its own. Sums are accumulated in float32.
struct LinearArguments {
  const std::byte* input;
  Dtype input_dtype;
  std::int64_t rows;
  const std::byte* bias;  // null: none
  Dtype bias_dtype;
  std::byte* output;
  Dtype output_dtype;
  Arithmetic arithmetic = Arithmetic::kFloat;
  const std::int64_t* input_rows = nullptr;  // (rows): which row of `input` each is, as often as asked; null: all in
                                             // order. linear_transposed takes none
};

// Up to this many rows of float input each weight row is read where it lies, on every CPU; from how many on tiles are
// unpacked into cache and multiplied there depends on the CPU and on the arithmetic.
inline constexpr std::int64_t kDirectRows = 8;

// output = input * W^T + bias, on OpenMP's threads. A row's result depends on the number of rows of a call by the
// rounding of sums alone, and on the other rows' values not at all. bfloat16 input is multiplied in bfloat16 where this
// CPU has it and there are several rows, else in float32; sums are float32. Never unpacks the whole matrix.
// Threads: reentrant.
void linear(const WeightMatrix& weight, const LinearArguments& arguments);

struct Product {
  WeightMatrix weight;
  LinearArguments arguments;
};
// The same for several products, each with its own arguments. Those that multiply one input (the same pointers, dtype
// and number of rows), as queries, keys and values do, or an MLP's gate and up, prepare it once and wake the threads
// once; so do neighbours of few rows with inputs of their own, as several experts' are.
void linear(std::span<const Product> products);

// output = input * W, as gradients flow back through linear. Shapes: input (rows, out_features), output (rows,
// in_features); there is no bias, and `arithmetic` is not looked at. bfloat16 input, and float32 whose output is
// bfloat16, is multiplied in bfloat16, to which weights are rounded too, where that is faster, all other in float32;
// sums are float32. A row's result depends on nothing but the row. Never unpacks the whole matrix. Threads: reentrant.
void linear_transposed(const WeightMatrix& weight, const LinearArguments& arguments);

// Writes rows [row_begin, row_end) as code * scale, then + offset, computed in float32 and rounded to `dtype` at last.
// Shape of out: (row_end - row_begin, in_features).
void dequantize(const WeightMatrix& weight, std::int64_t row_begin, std::int64_t row_end, std::byte* out, Dtype dtype);

// Converts between float32, float16 and bfloat16, rounding to nearest even. Any alignment.
void convert(const std::byte* source, Dtype source_dtype, std::byte* target, Dtype target_dtype, std::int64_t count);

// Name of the kernels in use: "ref", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx_bf16".
// HALFBYTE_ISA forces one.
// Errors: kInvalidArgument when HALFBYTE_ISA names a level that this CPU lacks, or no level.
const char* isa_name();

}  // namespace halfbyte::quant
