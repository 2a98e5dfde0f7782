// A model's weights and settings as the kernels of quant/ take them. Needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <halfbyte/group.h>
#include <halfbyte/key_values.h>
#include <halfbyte/linear.h>
#include <halfbyte/profile.h>

#include "models/architectures/attention_settings.h"
#include "models/cpu/experts_view.h"
#include "quant/activations.h"

namespace halfbyte::models::cpu {

// Weights that multiply one input. Shapes: (.., in_features) -> (.., out_features) each.
struct ProductsView {
  std::array<quant::Product, 3> products;  // without rows, input and outputs
  // The input's columns in the order that each weight's are in; null: as they are. Products of equal orders have one.
  std::array<const std::int64_t*, 3> orders = {};
  std::size_t count = 0;
  Dtype operand = Dtype::kFloat32;   // what the input must be
  WorkKind work = WorkKind::kOther;  // what a profile calls them

  std::int64_t out_features(std::size_t index) const { return products[index].weight.out_features; }
  // With `product` beside the others. False where it takes another input than they do, or there are three. `order`:
  // null: as it is.
  bool add(const quant::Product& product, std::span<const std::int64_t> order);
};

struct AttentionView {
  AttentionSettings settings;
  ProductsView inputs, output;
  quant::Norm query_norm, key_norm, value_norm;
  std::vector<float> sinks;  // empty: none
};

struct MlpView {
  Activation activation = Activation::kSilu;
  ProductsView gate_up, down;
};

struct LayerView {
  bool is_parallel = false, is_residual_normalised = false;
  bool has_more = false;  // there is more to it than mixing tokens and an MLP or experts
  float residual_scale = 1.0f;
  // What adds up the parts that ranks have of it; null: it is whole here, or does so by itself.
  Group *attention_group = nullptr, *mlp_group = nullptr;
  quant::Norm input_norm, attention_output_norm, mlp_norm, mlp_output_norm;
  std::optional<AttentionView> attention;      // nothing: what mixes the tokens runs as a module
  std::optional<MlpView> mlp;                  // nothing: experts
  std::shared_ptr<const ExpertsView> experts;  // null: what stands between runs as a module, where it is no MLP
};

struct ModelView {
  std::int64_t hidden_size = 0, first_layer = 0;
  Dtype operand = Dtype::kFloat32;  // of queries, keys and values
  KeyValues key_values = KeyValues::kOperand;
  quant::WeightMatrix embedding;  // an earlier stage's: unset
  float embedding_scale = 1.0f;
  std::vector<LayerView> layers;
  quant::Norm norm;  // without a weight: none
};

// A norm without a weight, of rows of `size` values. False where they are too long.
bool set_ones(std::int64_t size, quant::Norm& norm);

// Whether kernels have a form for such an attention. `is_centred`: its query's norm has a mean or a bias.
bool has_form(const AttentionSettings& settings, bool is_centred) noexcept;

// Kernels check no shapes: whether every product of an attention and an MLP reads and gives as many columns as its
// neighbours have room for, and they have a form for it.
bool fits(const AttentionView& view, std::int64_t hidden_size);
bool fits(const MlpView& view, std::int64_t hidden_size);

}  // namespace halfbyte::models::cpu
