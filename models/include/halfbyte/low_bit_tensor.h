// A weight matrix in 4 or 8 bits as LibTorch tensors, as it lies in the file: what load_state gives and LowBitLinear
// takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include <halfbyte/linear.h>
#include <halfbyte/operators.h>
#include <halfbyte/scheme.h>

namespace halfbyte {

// Shapes: codes int32 (out_features, words), scales (out_features, groups); of schemes that have them, zero_points
// int32 (out_features / 8 rounded up, groups), offsets of the shape and dtype of the scales, row_scales bfloat16
// (out_features), with which scales are int8: two times what the row's scale is multiplied by, and 1 where the code
// book is shifted. Copies share memory.
struct LowBitTensor {
  at::Tensor codes;
  at::Tensor scales;
  std::optional<at::Tensor> zero_points = std::nullopt;
  const Scheme* scheme = nullptr;
  std::int64_t in_features = 0;
  std::int64_t group_size = 0;
  at::ScalarType dtype = at::kFloat;  // before quantisation; where no file says it, that of the scales
  // int64 (in_features): column j of the codes is column column_order[j] of the matrix; nothing: their own order.
  std::optional<at::Tensor> column_order = std::nullopt;
  std::optional<at::Tensor> offsets = std::nullopt;
  std::optional<at::Tensor> row_scales = std::nullopt;

  std::int64_t out_features() const { return codes.size(0); }
  at::Device device() const { return codes.device(); }
  std::uint64_t size_bytes() const;  // Units: bytes of all its tensors.
  std::string description() const;   // "sym_int4 g64", "sym_int8 per channel"

  // Shape: (out_features, in_features). `type` is any floating dtype; nothing: `dtype`.
  // Errors: kContract.
  at::Tensor dequantize(std::optional<at::ScalarType> type = std::nullopt) const;

  // The rows of these indices, packed as all of it is. Shapes: indices int64 (count), on the same device ->
  // (count, in_features). Errors: LibTorch's, where an index is beyond the last row.
  LowBitTensor rows(const at::Tensor& indices) const;

  // x W^T + b, without ever unpacking the whole matrix on the CPU. Gradients flow to the input and the bias.
  // Shapes: input (..., in_features), bias (out_features) -> (..., out_features) in `result`, or the input's dtype.
  // `arithmetic` is the CPU's; other devices multiply in floats. Errors: kContract, kInvalidArgument naming the
  // operand.
  at::Tensor multiply(const at::Tensor& input, const std::optional<at::Tensor>& bias = std::nullopt,
                      std::optional<at::ScalarType> result = std::nullopt,
                      quant::Arithmetic arithmetic = quant::Arithmetic::kFloat) const;

  // Moves; no dtype changes.
  LowBitTensor to(at::Device device, bool non_blocking = false) const;

  // As the operators take it.
  operators::PackedWeight packed() const {
    return {codes, scales, scheme->name, group_size, zero_points, offsets, row_scales};
  }

  // What a weight may have beside codes and scales.
  struct Extra {
    Part part;
    std::optional<at::Tensor> LowBitTensor::* tensor;
    const char* title;  // "zero points"
  };
  static std::span<const Extra> extras() noexcept;
};

}  // namespace halfbyte
