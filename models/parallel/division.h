// Which part of a model each rank of a group has: heads of attentions, and the inner features of MLPs and experts. What
// cannot be cut is whole in each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/architectures/model_config.h"
#include "models/modules/model_weights.h"
#include "models/parallel/stages.h"

namespace halfbyte::models {

// From `begin` on, before `end`.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const noexcept { return end - begin; }
};

// Of one layer and rank. An empty range: it is whole.
struct LayerDivision {
  Range heads = {}, key_value_heads = {};  // a latent attention has no heads of keys
  Range inner = {};                        // of the MLP, or of the one beside experts
  Range shared_inner = {};                 // of the one that every token takes among them
  // Of every expert; where those have too few groups, or orders of columns, a rank has some experts whole.
  Range expert_inner = {};
  Range experts = {};

  bool has_attention() const noexcept { return heads.size() > 0; }
  bool has_experts() const noexcept { return expert_inner.size() > 0 || experts.size() > 0; }
  bool has_feed_forward() const noexcept { return inner.size() > 0 || has_experts(); }
};

struct Division {
  int rank = 0, size = 1;
  Stage stage;
  Range own_layers;  // of its stage; the others' are empty
  Range vocabulary;  // of the head; empty: it is whole
  std::vector<LayerDivision> layers;
  bool is_of_experts = false;  // whether a layer has any

  std::uint64_t whole_bytes = 0;    // of weights that are whole in each rank that has them
  std::string description() const;  // "rank 1 of 2: of 22 layers the attention of 22 and the MLP of 22 are divided ..."
};

// Decided by shapes alone, so that all ranks agree: heads go with the keys and values that they read, and ranges end at
// the borders of groups in the matrices whose columns are divided. What mixes tokens otherwise than by attention is not
// divided, nor an attention with one norm for all heads or whose matrices have an order of columns. The ranks of a
// stage divide its layers, which `config` and `weights` have alone, and all ranks the head.
//
// Every rank has a share of every expert, rather than every share of some: then each does equally much for a token,
// whichever few it chooses. A router is whole.
Division divide(const ModelConfig& config, const ModelWeights& weights, int rank, int size, int stages = 1);

// What a rank's modules are made of.
ModelConfig divided(const ModelConfig& config, const Division& division);
// Many rows that lie in a mapped file stay there where one range of them is taken; all else is copied, and `let_go` is
// told of what it was copied from. The first rank alone, of each stage, has the biases of what is added up.
struct MappedFiles {
  std::function<bool(const at::Tensor& tensor)> has;
  std::function<void(const at::Tensor& tensor)> let_go;
};
ModelWeights divided(const ModelConfig& config, ModelWeights weights, const Division& division,
                     const MappedFiles& mapped);

}  // namespace halfbyte::models
