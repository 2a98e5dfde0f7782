// The public functions with the kernels as an argument, for tests and benchmarks that compare levels in one process.
#pragma once

#include <optional>

#include <halfbyte/linear.h>
#include <halfbyte/quantize.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

std::optional<NonFinite> quantize_rows(const kernels::Table& table, const FloatRows& source,
                                       const GroupOptions& options, PackedRows out, ErrorStats& stats);
void linear(const kernels::Table& table, const WeightMatrix& weight, const LinearArguments& arguments);
void linear(const kernels::Table& table, std::span<const Product> products);
void linear_transposed(const kernels::Table& table, const WeightMatrix& weight, const LinearArguments& arguments);
void dequantize(const kernels::Table& table, const WeightMatrix& weight, std::int64_t row_begin, std::int64_t row_end,
                std::byte* out, Dtype dtype);
void convert(const kernels::Table& table, const std::byte* source, Dtype source_dtype, std::byte* target,
             Dtype target_dtype, std::int64_t count);
// In how many places of a matrix of 4-bit codes a thread reads in turn, with one row of input.
std::size_t row_streams(const kernels::Table& table) noexcept;

}  // namespace halfbyte::quant
