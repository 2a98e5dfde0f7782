// What the operators demand of their operands, checked before ATen or a kernel sees them.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include <halfbyte/dtype.h>
#include <halfbyte/linear.h>
#include <halfbyte/scheme.h>

namespace halfbyte::operators {

// A low-bit weight as the operators receive it, checked.
struct PackedOperand {
  const Scheme* scheme;
  std::int64_t out_features;
  std::int64_t in_features;
  std::int64_t group_size;
  at::Tensor codes, scales;  // contiguous
  at::Tensor zero_points;    // contiguous; int32 words, or offsets as scales; undefined without either
};

// Errors: kContract or kInvalidArgument naming the operator, the operand, what was found and what was wanted.
PackedOperand check_packed(const char* op, const at::Tensor& codes, const at::Tensor& scales,
                           const std::optional<at::Tensor>& zero_points, std::string_view scheme,
                           std::int64_t in_features, std::int64_t group_size);

// float32, float16 or bfloat16, dense and strided, or an error that names the operand and the cure.
Dtype check_floating(const char* op, const char* operand, const at::Tensor& tensor);
Dtype check_floating(const char* op, const char* operand, at::ScalarType type);
void check_same_device(const char* op, const char* operand, const at::Tensor& tensor, const char* reference_name,
                       const at::Tensor& reference);
void check_bias(const char* op, const std::optional<at::Tensor>& bias, std::int64_t out_features,
                const at::Tensor& input);
// Errors when the input has no last dimension of in_features.
void check_input(const char* op, const at::Tensor& input, std::int64_t in_features);
// The same for a packed weight, which does not tell its in_features: the rows of codes must be as long as the input
// needs. Before check_packed.
void check_packed_input(const char* op, const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                        std::string_view scheme, std::int64_t group_size);
// A dense weight: floating, of two dimensions, where the input is.
void check_weight(const char* op, const at::Tensor& weight, const at::Tensor& input);
// Errors unless "float" or "int8".
quant::Arithmetic check_arithmetic(const char* op, std::string_view arithmetic);
// Errors when autograd would have to remember a tensor that InferenceMode made.
void check_not_inference(const char* op, const char* operand, const at::Tensor& tensor);

}  // namespace halfbyte::operators
