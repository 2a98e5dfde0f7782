// Which experts a token takes, and with which shares, in plain memory: as modules/routing.h. Needs no LibTorch.
#pragma once

#include <cstdint>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// One token's. Shapes: all (num_experts).
struct TokenScores {
  float* products;          // the router's; becomes scores
  float* ranked;            // for what they are chosen by
  const float* correction;  // null: none
};
// Precondition: scoring is kSoftmax or kSigmoid. Shapes: chosen, shares (experts_per_token).
void route_token(const TokenScores& token, const MoeConfig& config, std::int64_t* chosen, float* shares);

}  // namespace halfbyte::models
