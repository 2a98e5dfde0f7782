// halfbyte's LibTorch operators: products with packed weights for every backend that LibTorch has, and what a decoded
// token takes besides.
//
//   halfbyte::low_bit_linear(Tensor input, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? bias, str scheme,
//                            int group_size, ScalarType? out_dtype=None, str arithmetic="float",
//                            Tensor? offsets=None, Tensor? row_scales=None) -> Tensor
//   halfbyte::low_bit_linears(Tensor input, Tensor[] codes, Tensor[] scales, Tensor?[] zero_points, Tensor?[] biases,
//                             str scheme, int group_size, Tensor?[] offsets, Tensor?[] row_scales,
//                             ScalarType? out_dtype=None, str arithmetic="float") -> Tensor[]
//   halfbyte::low_bit_linear_transposed(Tensor input, Tensor codes, Tensor scales, Tensor? zero_points, str scheme,
//                                       int in_features, int group_size, ScalarType? out_dtype=None,
//                                       Tensor? offsets=None, Tensor? row_scales=None) -> Tensor
//   halfbyte::dense_linear(Tensor input, Tensor weight, Tensor? bias, ScalarType? out_dtype=None) -> Tensor
//   halfbyte::dequantize(Tensor codes, Tensor scales, Tensor? zero_points, str scheme, int in_features, int group_size,
//                        ScalarType dtype, Tensor? offsets=None, Tensor? row_scales=None) -> Tensor
//   halfbyte::decode_attention(Tensor query, Tensor keys, Tensor values, float scale, Tensor? mask=None) -> Tensor
//   halfbyte::rms_norm(Tensor input, Tensor weight, float epsilon) -> Tensor
//   halfbyte::rotary_embedding(Tensor query, Tensor key, Tensor cosine, Tensor sine) -> (Tensor, Tensor)
//   halfbyte::gated_product(Tensor gate, Tensor up, str activation, ScalarType? out_dtype=None) -> Tensor
//
// CPU: the kernels of quant/kernels. Every other backend (CUDA, XPU, MPS, Meta ...): a composite of ATen operators.
// Gradients: with respect to the activation, the bias, a dense weight, and the scales of a packed one; multiplied in
// the dtype of the forward product's activation, where the CPU is fast in it, else in float32, with sums in float32.
// Autocast, of every device that LibTorch's knows: casts the activation of linear products, nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/linear.h>

namespace halfbyte::operators {

// Registers the operators with LibTorch; safe to call from any thread, any number of times. A static archive would drop
// static registrations, so whoever uses the operators by name calls this first.
void register_operators();

// A packed weight as the operators take it. Shapes: codes int32 (out_features, words), scales (out_features, groups);
// of schemes that have them, zero_points int32 (out_features / 8 rounded up, groups), offsets of the shape and dtype of
// the scales, row_scales bfloat16 (out_features); scales are int8 with those, else floats.
struct PackedWeight {
  at::Tensor codes;
  at::Tensor scales;
  std::string_view scheme;
  std::int64_t group_size;
  std::optional<at::Tensor> zero_points = std::nullopt;
  std::optional<at::Tensor> offsets = std::nullopt;
  std::optional<at::Tensor> row_scales = std::nullopt;

  // What a weight has beside codes and scales in some schemes.
  struct Extra {
    Part part;
    std::optional<at::Tensor> PackedWeight::*tensor;
    const char* name;
  };
  static std::span<const Extra> extras() noexcept;
};

// Through LibTorch's dispatcher, so that autograd and autocast apply.
// Shapes: input (..., in_features), bias (out_features); result (..., out_features) in out_dtype, or the input's dtype.
// `arithmetic` is that of quant::linear on the CPU ("float" or "int8"); other backends multiply in floats whatever it
// says. Errors: halfbyte::Error kContract or kInvalidArgument naming the operand, its dtype, shape or device, and what
// was wanted; BackendError where the backend's own operators refuse.
at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight,
                          const std::optional<at::Tensor>& bias = std::nullopt,
                          std::optional<at::ScalarType> out_dtype = std::nullopt,
                          quant::Arithmetic arithmetic = quant::Arithmetic::kFloat);

// low_bit_linear of one input with several weights, of one scheme and group size: the input is prepared once and
// threads are woken once. `biases` may be empty. Results and errors: as low_bit_linear's, and kInvalidArgument for
// other weights.
std::vector<at::Tensor> low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                        std::span<const std::optional<at::Tensor>> biases = {},
                                        std::optional<at::ScalarType> out_dtype = std::nullopt,
                                        quant::Arithmetic arithmetic = quant::Arithmetic::kFloat);

// input * W: how gradients flow back through low_bit_linear. Shapes: input (..., out_features); result (...,
// in_features) in out_dtype, or the input's dtype. bfloat16 input is multiplied in bfloat16 where that is fast, all
// other on the CPU in float32; the matrix is never dense as a whole. Errors: as low_bit_linear.
at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& weight, std::int64_t in_features,
                                     std::optional<at::ScalarType> out_dtype = std::nullopt);

// Shapes: input (..., in_features), weight (out_features, in_features). The dtypes of input, weight and bias may differ
// among float32, float16 and bfloat16: nothing is cast but in registers.
at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        std::optional<at::ScalarType> out_dtype = std::nullopt);

// Result: (out_features, in_features).
at::Tensor dequantize(const PackedWeight& weight, std::int64_t in_features, at::ScalarType dtype);

// softmax(query keys^T * scale) values of one new token; heads that share keys read them once. `mask`: bool, of shape
// (batch or 1, 1, 1, tokens), true for the keys that it sees; of keys before and behind those that it sees none is
// read. Shapes: query (batch, heads, 1, head_dim), keys and values (batch, kv_heads, tokens, head_dim), heads a
// multiple of kv_heads; result (batch, 1, heads, head_dim) in the query's dtype. Sums are float32. A composite of ATen
// operators where a gradient is wanted, and on every backend but the CPU. Errors: as low_bit_linear.
at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, double scale,
                            const std::optional<at::Tensor>& mask = std::nullopt);

// weight * (input / sqrt(mean(input^2) + epsilon)), in float32 but for what meets the weight, which is rounded to the
// input's dtype first, as transformers does. Shapes: input (..., size), weight (size); result as the input, in the
// dtype that LibTorch gives a product of both. A composite as for decode_attention. Errors: as low_bit_linear.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);

// Queries and keys turned by their positions, the halves of a head against each other: x * cosine + (-x2, x1) * sine,
// where each product is rounded to the dtype of x before they are added, as LibTorch's operators do it one by one: bits
// are equal to theirs. Shapes: query (batch, heads, tokens, head_dim), key (batch, kv_heads, tokens, head_dim), cosine
// and sine (batch or 1, tokens, turned) with an even turned, at most head_dim: values behind those stay. All are of one
// dtype; results have their shapes, and lie as rows of (tokens, heads, head_dim). A composite as for decode_attention. Errors: as low_bit_linear.
std::tuple<at::Tensor, at::Tensor> rotary_embedding(const at::Tensor& query, const at::Tensor& key,
                                                    const at::Tensor& cosine, const at::Tensor& sine);

// activation(gate) * up, computed in float32 and rounded once. activation: "silu", "gelu" or "gelu_tanh". Shapes: gate
// and up alike; result the same, in out_dtype or the gate's dtype. A composite as for decode_attention. Errors: as
// low_bit_linear.
at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                         std::optional<at::ScalarType> out_dtype = std::nullopt);

}  // namespace halfbyte::operators
