// Which experts a token takes, and with which shares.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Shapes: (tokens, experts_per_token).
struct Routes {
  at::Tensor chosen;  // int64
  at::Tensor shares;  // float32
};

// `products`: the router's. Shapes: products (tokens, num_experts), float32; correction (num_experts), or undefined.
Routes route(const at::Tensor& products, const at::Tensor& correction, const MoeConfig& config);

// One token's, in plain memory. Shapes: all (num_experts).
struct TokenScores {
  float* products;          // the router's; becomes scores
  float* ranked;            // for what they are chosen by
  const float* correction;  // null: none
};
// Precondition: scoring is kSoftmax or kSigmoid. Shapes: chosen, shares (experts_per_token).
void route_token(const TokenScores& token, const MoeConfig& config, std::int64_t* chosen, float* shares);

}  // namespace halfbyte::models
