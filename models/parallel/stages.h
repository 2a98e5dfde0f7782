// Stages of layers: ranks in groups of neighbours, each of which has some layers that follow each other, and divides
// them among its ranks. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Where a rank is.
struct Stage {
  int index = 0, count = 1;   // of stages
  int place = 0, places = 1;  // among the ranks of its stage

  bool is_first() const noexcept { return index == 0; }
  bool is_last() const noexcept { return index == count - 1; }
  int rank_at(int stage) const noexcept { return stage * places + place; }  // at its own place there
  std::vector<int> ranks() const;                                           // of its stage
};

// Errors: kInvalidArgument where `stages` do not divide the ranks.
Stage stage_of(int rank, int size, int stages);

// The first layer of each stage, so that their bytes are as even as can be, and no layer is without another whose keys
// it reads. `bytes`: each layer's. Errors: kUnsupported where there are fewer places to divide at.
std::vector<std::int64_t> first_layers(const ModelConfig& config, std::span<const std::uint64_t> bytes, int stages);

// What a rank of that stage is to gather and to make modules of.
ModelConfig staged(const ModelConfig& config, std::span<const std::uint64_t> bytes, const Stage& stage);

}  // namespace halfbyte::models
