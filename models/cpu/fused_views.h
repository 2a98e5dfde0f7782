// A model's view from weights in plain memory, as module_views.h makes it of modules. Needs no LibTorch.
#pragma once

#include <string>

#include "models/cpu/fused_weights.h"
#include "models/cpu/views.h"

namespace halfbyte::models::cpu {

// Why a model of this configuration has something that kernels have no form for; empty: it has not.
std::string why_not_fused(const ModelConfig& config);

// A weight's product, without rows, input and output; whether its bias has a value for each output.
quant::Product product_of(const FusedWeight& weight);
bool has_bias_of(const FusedWeight& weight);
// The product of float32 input with values that are a matrix. Shape: (out_features, in_features).
quant::Product router_of(const FusedWeight& weight, std::int64_t out_features, std::int64_t in_features);

// The layers, the embedding, the final norm; and the product of the head. Precondition: why_not_fused() is empty. Why
// the weights do not lie as kernels read them together; empty: they do.
std::string view(const ModelConfig& config, const FusedWeights& weights, ModelView& out, ProductsView& head);

}  // namespace halfbyte::models::cpu
