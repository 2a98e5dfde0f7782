// What low-rank adapters are like. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace halfbyte {

struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16;
  bool is_rank_stabilised = false;    // alpha / sqrt(rank) instead of alpha / rank (rsLoRA)
  bool is_weight_decomposed = false;  // a magnitude for each row of the weight beside the two matrices (DoRA)
  double dropout = 0;                 // of what the adapters are given, while they train
  // Patterns of the names of Linears ("model.layers.0.mlp.up_proj"), as DtypeOverride's; empty: all but the head.
  std::vector<std::string> targets = {};
  std::uint64_t seed = 0;
};

}  // namespace halfbyte
