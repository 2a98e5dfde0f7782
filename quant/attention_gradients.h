// Gradients of causal attention in bfloat16, on rows in plain memory. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfbyte::quant {

// Rows of heads in bfloat16: value i of a token of head (g, h) at data + g * group_stride + h * head_stride + token *
// token_stride + i. Units: values.
struct Bfloat16Heads {
  const std::byte* data;
  std::int64_t group_stride, head_stride, token_stride;
};

// One sequence, of which a token sees itself and those before. The heads of a group share keys and values. Products are
// made in bfloat16, to which weights and their gradients are rounded; sums are float32 and do not depend on the number
// of threads.
struct AttentionGradients {
  std::int64_t groups, heads, tokens, head_dim;  // heads of a group; head_dim is even
  float scale;
  Bfloat16Heads queries, keys, values, result, of_result;  // keys and values have no head_stride
  const float* logsumexp;                                  // of scores; (groups, heads, tokens)
  std::byte* of_queries;                                   // bfloat16 (groups, heads, tokens, head_dim)
  float *of_keys, *of_values;  // of each query head's own: (groups, heads, tokens, head_dim)
};
// Whether there are kernels that are faster than LibTorch's operators.
bool has_attention_gradients() noexcept;
void attention_gradients(const AttentionGradients& arguments);

}  // namespace halfbyte::quant
