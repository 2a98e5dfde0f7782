// Which experts a token takes, and with which shares.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/cpu/route_token.h"

namespace halfbyte::models {

// Shapes: (tokens, experts_per_token).
struct Routes {
  at::Tensor chosen;  // int64
  at::Tensor shares;  // float32
};

// `products`: the router's. Shapes: products (tokens, num_experts), float32; correction (num_experts), or undefined.
Routes route(const at::Tensor& products, const at::Tensor& correction, const MoeConfig& config);

}  // namespace halfbyte::models
