// A model's weights as the kernels of quant/ take them, read from the modules at every pass: a host may have replaced
// or moved them since.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <halfbyte/linear.h>
#include <halfbyte/profile.h>

#include "models/modules/decoder.h"
#include "quant/activations.h"

namespace halfbyte::models::cpu {

// Linear modules that multiply one input. Shapes: (.., in_features) -> (.., out_features) each.
struct ProductsView {
  std::array<quant::Product, 3> products;  // without rows, input and outputs
  // The input's columns in the order that each weight's are in; null: as they are. Products of equal orders have one.
  std::array<const std::int64_t*, 3> orders = {};
  std::size_t count = 0;
  Dtype operand = Dtype::kFloat32;   // what the input must be
  WorkKind work = WorkKind::kOther;  // what a profile calls them

  std::int64_t out_features(std::size_t index) const { return products[index].weight.out_features; }
};

// The product with a module's weight, without rows, input and output; nothing where it does not lie as kernels read it,
// or its columns are in an order of their own. `operand`: what the input is, whatever the module would make of it.
std::optional<quant::Product> product_of(const Linear& linear, std::optional<Dtype> operand = std::nullopt);

struct LayerView {
  const DecoderLayer* layer;
  quant::Norm input_norm, attention_output_norm, mlp_norm, mlp_output_norm, query_norm, key_norm, value_norm;
  const Attention* attention;       // null: what mixes the tokens runs as a module
  ProductsView inputs, output;      // of the attention
  std::vector<float> sinks;         // of it; empty: none
  const Mlp* mlp;                   // null: experts
  const MixtureOfExperts* experts;  // null: where there are any they run as a module
  ProductsView gate_up, down;
};

struct ModelView {
  quant::WeightMatrix embedding;  // an earlier stage's: unset
  std::vector<LayerView> layers;
  quant::Norm norm;  // without a weight: none
};

// False where a tensor does not lie as kernels read it (another device, dtype or order),
// shapes do not fit each other, or the dtypes of products that share an input differ: then the modules run one by one,
// and say what is wrong if anything is.
bool view(const Decoder& decoder, ModelView& out);

}  // namespace halfbyte::models::cpu
