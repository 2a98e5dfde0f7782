// What the operators demand of their operands, checked before ATen or a kernel sees them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/dtype.h>
#include <halfbyte/linear.h>
#include <halfbyte/operators.h>
#include <halfbyte/scheme.h>

namespace halfbyte::operators {

// A low-bit weight as the operators receive it, checked: its tensors are contiguous.
struct PackedOperand {
  const Scheme* scheme;
  std::int64_t out_features;
  std::int64_t in_features;
  PackedWeight weight;
};

// Throws kInvalidArgument, naming the operator.
[[noreturn]] void refuse(const char* op, const std::string& what);

// Errors: kContract or kInvalidArgument naming the operator, the operand, what was found and what was wanted.
PackedOperand check_packed(const char* op, const PackedWeight& weight, std::int64_t in_features);

// What the scheme wants of a part: its dtype is that of the scales where the rule says none.
std::vector<std::int64_t> shape_of(const PartRule& rule, const PackedOperand& packed);
at::ScalarType type_of(const PartRule& rule, const PackedOperand& packed);

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
void check_packed_input(const char* op, const at::Tensor& input, const PackedWeight& weight);
// A dense weight: floating, of two dimensions, where the input is.
void check_weight(const char* op, const at::Tensor& weight, const at::Tensor& input);
// Errors unless "float" or "int8".
quant::Arithmetic check_arithmetic(const char* op, std::string_view arithmetic);
// Errors when autograd would have to remember a tensor that InferenceMode made.
void check_not_inference(const char* op, const char* operand, const at::Tensor& tensor);

}  // namespace halfbyte::operators
