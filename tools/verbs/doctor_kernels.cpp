// Runs halfbyte's own products on this machine, in each dtype.
//
// How native and widened are told apart: the product is asked for in float32, of inputs that are exact in their dtype.
// If nothing was rounded on the way but float32 sums, it was computed in float32; if weights were rounded to the
// inputs' dtype first, it was computed in that.
#include <algorithm>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>
#include <halfbyte/quantize.h>

#include "quant/kernels/onednn/onednn.h"
#include "tools/cli/format.h"
#include "tools/cli/spelling.h"
#include "tools/verbs/doctor.h"

namespace halfbyte::cli {
namespace {

constexpr std::int64_t kRows = 96;
constexpr std::int64_t kColumns = 256;
constexpr std::int64_t kGroupSize = 64;
constexpr double kFloat32Bound = 1e-5;  // of sums of 256 products; measured 1e-7
constexpr double kRoundedBound = 1e-2;  // of weights rounded to bfloat16; measured 1.7e-3

using Bytes = std::vector<std::byte>;

Bytes as_dtype(const std::vector<float>& values, Dtype dtype) {
  Bytes out(values.size() * static_cast<std::size_t>(size_bytes(dtype)));
  quant::convert(std::as_bytes(std::span(values)).data(), Dtype::kFloat32, out.data(), dtype,
                 static_cast<std::int64_t>(values.size()));
  return out;
}

std::vector<float> as_floats(const Bytes& bytes, Dtype dtype) {
  std::vector<float> out(bytes.size() / static_cast<std::size_t>(size_bytes(dtype)));
  quant::convert(bytes.data(), dtype, std::as_writable_bytes(std::span(out)).data(), Dtype::kFloat32,
                 static_cast<std::int64_t>(out.size()));
  return out;
}

// A weight matrix with its storage, and the values it stands for.
struct Weight {
  Bytes codes, scales, zero_points, offsets, row_scales;
  quant::WeightMatrix matrix;
  std::vector<float> values;
};

Weight packed_weight(const Scheme& scheme) {
  const std::vector<float> source = trial_values(kRows * kColumns, 1);
  Weight out;
  out.matrix = {.scheme = &scheme,
                .scale_dtype = Dtype::kFloat32,
                .out_features = kRows,
                .in_features = kColumns,
                .group_size = kGroupSize};
  out.codes.resize(static_cast<std::size_t>(kRows * out.matrix.row_bytes()));
  out.scales.resize(static_cast<std::size_t>(kRows * out.matrix.groups()) * sizeof(float));
  std::vector<std::uint8_t> zero_points(static_cast<std::size_t>(kRows * out.matrix.groups()));
  out.offsets.resize(out.scales.size());
  out.row_scales.resize(static_cast<std::size_t>(kRows) * 2);
  quant::ErrorStats stats;
  quant::quantize_rows(
      {std::as_bytes(std::span(source)).data(), Dtype::kFloat32, kRows, kColumns},
      {.scheme = &scheme, .group_size = kGroupSize, .scale_dtype = Dtype::kFloat32},
      {out.codes.data(), out.scales.data(), zero_points.data(), nullptr, out.offsets.data(), out.row_scales.data()},
      stats);
  if (scheme.decode == Decode::kZeroPoint) {
    out.zero_points.resize(static_cast<std::size_t>(zero_point_words(kRows) * out.matrix.groups()) * 4);
    quant::pack_zero_points(zero_points.data(), kRows, out.matrix.groups(),
                            reinterpret_cast<std::uint32_t*>(out.zero_points.data()));
    out.matrix.zero_points = out.zero_points.data();
  }
  if (scheme.decode == Decode::kOffset) out.matrix.offsets = out.offsets.data();
  if (has_row_scales(scheme)) out.matrix.row_scales = out.row_scales.data();
  out.matrix.rows = out.codes.data();
  out.matrix.scales = out.scales.data();
  return out;
}

// In float32, which must be rounded if the product is in another dtype. That is chosen by the input, not by the
// weights.
Weight dense_weight() {
  Weight out;
  out.codes = as_dtype(trial_values(kRows * kColumns, 2), Dtype::kFloat32);
  out.matrix = {
      .dense_dtype = Dtype::kFloat32, .rows = out.codes.data(), .out_features = kRows, .in_features = kColumns};
  return out;
}

void unpack(Weight& weight) {
  weight.values.resize(kRows * kColumns);
  quant::dequantize(weight.matrix, 0, kRows, std::as_writable_bytes(std::span(weight.values)).data(), Dtype::kFloat32);
}

double error_of_product(const Weight& weight, Dtype dtype, std::int64_t input_rows) {
  const Bytes input = as_dtype(trial_values(static_cast<std::size_t>(input_rows * kColumns), 3), dtype);
  const std::vector<float> exact = as_floats(input, dtype);
  std::vector<double> wanted(static_cast<std::size_t>(input_rows * kRows));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float* row = exact.data() + i / kRows * kColumns;
    const float* column = weight.values.data() + i % kRows * kColumns;
    for (std::size_t k = 0; k < kColumns; ++k)
      wanted[i] += static_cast<double>(row[k]) * static_cast<double>(column[k]);
  }
  std::vector<float> output(wanted.size());
  quant::linear(weight.matrix, {.input = input.data(),
                                .input_dtype = dtype,
                                .rows = input_rows,
                                .bias = nullptr,
                                .bias_dtype = Dtype::kFloat32,
                                .output = std::as_writable_bytes(std::span(output)).data(),
                                .output_dtype = Dtype::kFloat32});
  return rel_rmse(output, wanted);
}

void judge(Dtype dtype, Trial& trial) {
  if (!(trial.rel_rmse < kRoundedBound)) {
    trial.verdict = Verdict::kWrong;
    trial.reason = "the product differs from that in float64";
  } else if (dtype == Dtype::kFloat32) {
    trial.verdict = Verdict::kNative;
    trial.reason = "float32 is what the kernels compute in";
  } else if (trial.rel_rmse < kFloat32Bound) {
    trial.verdict = Verdict::kWidened;
    trial.reason = "exact to float32: widened in registers";
  } else {
    trial.verdict = Verdict::kNative;
    trial.reason = "weights are rounded to " + std::string(name(dtype)) + ", which the product takes";
  }
}

Trial try_product(const std::string& operation, const std::vector<Weight>& weights, Dtype dtype, std::int64_t rows) {
  Trial trial{operation, std::string(name(dtype)), {}, 0, {}, true};
  try {
    for (const Weight& weight : weights)
      trial.rel_rmse = std::max(trial.rel_rmse, error_of_product(weight, dtype, rows));
    judge(dtype, trial);
  } catch (const std::exception& error) {
    trial.verdict = Verdict::kRefused;
    trial.reason = said(error);
  }
  return trial;
}

}  // namespace

std::vector<Trial> try_kernels() {
  std::vector<Weight> packed;
  for (const Scheme& scheme : schemes()) packed.push_back(packed_weight(scheme));
  for (Weight& weight : packed) unpack(weight);
  std::vector<Weight> dense;
  dense.push_back(dense_weight());
  unpack(dense.front());
  std::vector<Trial> out;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16}) {
    out.push_back(try_product("low-bit linear, one row", packed, dtype, 1));
    out.push_back(try_product("low-bit linear, many rows", packed, dtype, 64));
    out.push_back(try_product("dense linear, one row", dense, dtype, 1));
    out.push_back(try_product("dense linear, many rows", dense, dtype, 64));
  }
  return out;
}

}  // namespace halfbyte::cli
