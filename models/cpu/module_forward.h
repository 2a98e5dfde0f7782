// The fused pass of a model whose weights are modules'.
#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

namespace halfbyte::models {
class Decoder;
struct StepRow;
}  // namespace halfbyte::models

namespace halfbyte::models::cpu {

// As Decoder::forward. Nothing, with the sessions as they were, where the modules must run one by one: on other
// devices, with gradients on, under autocast, while an OverflowProbe or a Tap looks on, under a policy without a
// float32 stream, and where a tensor does not lie as kernels read it.
std::optional<at::Tensor> forward(const Decoder& decoder, const at::Tensor& tokens, std::span<const StepRow> rows,
                                  const at::Tensor& input);

}  // namespace halfbyte::models::cpu
