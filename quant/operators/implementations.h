// The operators' kernels, one function per dispatch key; register.cpp binds them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/operators.h>

namespace halfbyte::operators {

using OptionalTensor = std::optional<at::Tensor>;
using OptionalType = std::optional<at::ScalarType>;
using Turned = std::tuple<at::Tensor, at::Tensor>;  // queries, keys

namespace cpu {
at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                          OptionalType out_dtype, std::string_view arithmetic);
at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& weight, std::int64_t in_features,
                                     OptionalType out_dtype);
at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype);
at::Tensor dequantize(const PackedWeight& weight, std::int64_t in_features, at::ScalarType dtype);
// a^T b, in bfloat16 where that is fast, with float32 sums and result. Shapes: a (rows, m) in any dtype, b (rows, n) in
// bfloat16; (m, n).
at::Tensor product_over_rows(const at::Tensor& a, const at::Tensor& b);
at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, double scale,
                            const OptionalTensor& mask);
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);
std::vector<at::Tensor> low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                        std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                        std::string_view arithmetic);
Turned rotary_embedding(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                        const at::Tensor& sine);
at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                         OptionalType out_dtype);
}  // namespace cpu

namespace composite {
at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                          OptionalType out_dtype, std::string_view arithmetic);
at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& weight, std::int64_t in_features,
                                     OptionalType out_dtype);
at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype);
at::Tensor dequantize(const PackedWeight& weight, std::int64_t in_features, at::ScalarType dtype);
at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, double scale,
                            const OptionalTensor& mask);
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);
std::vector<at::Tensor> low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                        std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                        std::string_view arithmetic);
Turned rotary_embedding(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                        const at::Tensor& sine);
at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                         OptionalType out_dtype);
}  // namespace composite

namespace autograd {
at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                          OptionalType out_dtype, std::string_view arithmetic);
at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& weight, std::int64_t in_features,
                                     OptionalType out_dtype);
at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype);
at::Tensor dequantize(const PackedWeight& weight, std::int64_t in_features, at::ScalarType dtype);
at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, double scale,
                            const OptionalTensor& mask);
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);
std::vector<at::Tensor> low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                        std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                        std::string_view arithmetic);
Turned rotary_embedding(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                        const at::Tensor& sine);
at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                         OptionalType out_dtype);
}  // namespace autograd

}  // namespace halfbyte::operators
