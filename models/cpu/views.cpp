#include "models/cpu/views.h"

#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"

namespace halfbyte::models::cpu {
namespace {

std::optional<quant::WeightMatrix> matrix_of(const Linear& linear) {
  if (const auto* packed = dynamic_cast<const LowBitLinear*>(&linear)) {
    const LowBitTensor& weight = packed->weight();
    if (weight.column_order) return std::nullopt;
    return operators::plain_packed_matrix({weight.scheme, weight.out_features(), weight.in_features, weight.packed()});
  }
  const auto* dense = dynamic_cast<const DenseLinear*>(&linear);
  if (!dense || !operators::is_plain(dense->weight()) || dense->weight().dim() != 2) return std::nullopt;
  return operators::dense_matrix(dense->weight());
}

bool add(const Linear& linear, ProductsView& view) {
  const auto matrix = matrix_of(linear);
  const auto operand = linear.operand_dtype() ? from_torch(*linear.operand_dtype()) : std::nullopt;
  if (!matrix || !operand || !is_weight_dtype(*operand)) return false;
  quant::LinearArguments arguments{};
  arguments.input_dtype = *operand;
  arguments.output_dtype = Dtype::kFloat32;
  arguments.arithmetic = linear.arithmetic();
  if (const at::Tensor& bias = linear.bias_or_undefined(); bias.defined()) {
    if (!operators::is_plain(bias) || bias.numel() != matrix->out_features) return false;
    arguments.bias = operators::bytes_of(bias);
    arguments.bias_dtype = *from_torch(bias.scalar_type());
  }
  const quant::Product& first = view.products[0];
  if (view.count > 0 && (view.operand != *operand || first.arguments.arithmetic != arguments.arithmetic ||
                         first.weight.in_features != matrix->in_features)) {
    return false;
  }
  view.operand = *operand;
  view.products[view.count++] = {*matrix, arguments};
  return true;
}

bool add(std::span<const std::shared_ptr<Linear>> linears, ProductsView& view) {
  for (const auto& linear : linears) {
    if (!add(*linear, view)) return false;
  }
  return true;
}

// No module: no norm.
bool set(const RmsNorm* module, quant::RmsNorm& norm) {
  norm = {};
  if (!module) return true;
  if (!operators::is_plain(module->weight())) return false;
  norm = {operators::bytes_of(module->weight()), *from_torch(module->weight().scalar_type()),
          static_cast<float>(module->offset()), static_cast<float>(module->epsilon())};
  return true;
}

bool set(const DecoderLayer& layer, LayerView& view) {
  view = {};
  view.layer = &layer;
  if (!layer.attention()) return false;
  const Attention& attention = *layer.attention();
  const bool has_norms = set(layer.input_norm(), view.input_norm) && set(layer.mlp_norm(), view.mlp_norm) &&
                         set(layer.attention_output_norm(), view.attention_output_norm) &&
                         set(layer.mlp_output_norm(), view.mlp_output_norm) &&
                         set(attention.query_norm(), view.query_norm) && set(attention.key_norm(), view.key_norm);
  if (!has_norms || !add(attention.inputs(), view.inputs) || !add(attention.output(), view.output)) return false;
  view.mlp = dynamic_cast<const Mlp*>(&layer.feed_forward());
  return !view.mlp || (add(view.mlp->inputs(), view.gate_up) && add(view.mlp->down(), view.down));
}

}  // namespace

bool view(const Decoder& decoder, ModelView& out) {
  out.layers.resize(decoder.layers().size());
  for (std::size_t i = 0; i < out.layers.size(); ++i) {
    if (!set(*decoder.layers()[i], out.layers[i])) return false;
  }
  return set(decoder.norm(), out.norm);
}

}  // namespace halfbyte::models::cpu
