#include "models/cpu/module_views.h"

#include <algorithm>
#include <array>
#include <span>
#include <variant>

#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"

namespace halfbyte::models::cpu {
namespace {

std::optional<quant::WeightMatrix> matrix_of(const LowBitTensor& weight) {
  return operators::plain_packed_matrix({weight.scheme, weight.out_features(), weight.in_features, weight.packed()});
}

std::optional<quant::WeightMatrix> matrix_of(const at::Tensor& weight) { return operators::plain_dense_matrix(weight); }

bool set(const Embedding& embedding, quant::WeightMatrix& view) {
  if (embedding.packed() && embedding.packed()->column_order) return false;
  const auto matrix = std::visit([](const auto& weight) { return matrix_of(weight); }, embedding.weight());
  if (matrix) view = *matrix;
  return matrix.has_value();
}

// Empty: as they are. Nothing: it does not lie as kernels read it.
std::optional<std::span<const std::int64_t>> order_of(const Linear& linear) {
  if (!linear.column_order()) return std::span<const std::int64_t>();
  const at::Tensor& order = *linear.column_order();
  if (!order.is_cpu() || order.scalar_type() != at::kLong || !order.is_contiguous()) return std::nullopt;
  return std::span(order.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(order.numel()));
}

// Whatever the order of its columns.
std::optional<quant::Product> any_product_of(const Linear& linear, std::optional<Dtype> operand) {
  const auto matrix = linear.matrix();
  if (!operand && linear.operand_dtype()) operand = from_torch(*linear.operand_dtype());
  if (!matrix || !operand || !is_weight_dtype(*operand)) return std::nullopt;
  quant::LinearArguments arguments{};
  arguments.input_dtype = *operand;
  arguments.output_dtype = Dtype::kFloat32;
  arguments.arithmetic = linear.arithmetic();
  if (const at::Tensor& bias = linear.bias_or_undefined(); bias.defined()) {
    if (!operators::is_plain(bias) || bias.numel() != matrix->out_features) return std::nullopt;
    arguments.bias = operators::bytes_of(bias);
    arguments.bias_dtype = *from_torch(bias.scalar_type());
  }
  return quant::Product{*matrix, arguments};
}

bool add(const Linear& linear, ProductsView& view) {
  const auto product = any_product_of(linear, std::nullopt);
  const auto order = order_of(linear);
  return product && order && view.add(*product, *order);
}

bool add(std::span<const std::shared_ptr<Linear>> linears, ProductsView& view) {
  for (const auto& linear : linears) {
    if (!add(*linear, view)) return false;
  }
  return true;
}

// No module: no norm.
bool set(const Norm* module, std::int64_t size, quant::Norm& norm) {
  norm = {};
  if (!module) return true;
  const at::Tensor &weight = module->weight(), &bias = module->bias();
  norm.epsilon = static_cast<float>(module->epsilon());
  norm.is_centred = module->is_centred();
  if (!weight.defined()) return set_ones(size, norm);
  if (!operators::is_plain(weight) || weight.numel() != size) return false;
  norm.weight = operators::bytes_of(weight);
  norm.dtype = *from_torch(weight.scalar_type());
  norm.offset = static_cast<float>(module->offset());
  if (!bias.defined()) return true;
  if (!operators::is_plain(bias) || bias.numel() != size || bias.scalar_type() != weight.scalar_type()) return false;
  norm.bias = operators::bytes_of(bias);
  return true;
}

bool set(const Attention& attention, std::int64_t hidden_size, AttentionView& view) {
  const AttentionSettings& a = view.settings = attention.settings();
  view.inputs.work = WorkKind::kQkv;
  view.output.work = WorkKind::kAttentionOutput;
  const bool is_of_all = a.norm == QueryKeyNorm::kAllHeads;
  if (!set(attention.query_norm(), (is_of_all ? a.heads : 1) * a.head_dim, view.query_norm) ||
      !set(attention.key_norm(), (is_of_all ? a.kv_heads : 1) * a.head_dim, view.key_norm) ||
      !set(attention.value_norm(), a.head_dim, view.value_norm) || !add(attention.inputs(), view.inputs) ||
      !add(attention.output(), view.output))
    return false;
  if (attention.sinks().defined()) {
    const at::Tensor sinks = attention.sinks().to(at::kCPU, at::kFloat).contiguous();
    if (sinks.numel() != a.heads) return false;
    view.sinks.assign(sinks.const_data_ptr<float>(), sinks.const_data_ptr<float>() + sinks.numel());
  }
  return fits(view, hidden_size);
}

bool set(const Mlp& mlp, std::int64_t hidden_size, MlpView& view) {
  view.activation = mlp.activation();
  view.gate_up.work = WorkKind::kGateUp;
  view.down.work = WorkKind::kDown;
  return add(mlp.inputs(), view.gate_up) && add(mlp.down(), view.down) && fits(view, hidden_size);
}

bool is_centred(const Norm* norm) { return norm && (norm->is_centred() || norm->bias().defined()); }

bool set(const DecoderLayer& layer, std::int64_t hidden_size, LayerView& view) {
  view = {};
  view.is_parallel = layer.is_parallel();
  view.is_residual_normalised = layer.is_residual_normalised();
  view.has_more = layer.has_more();
  view.residual_scale = static_cast<float>(layer.residual_scale());
  view.attention_group = layer.attention_group();
  view.mlp_group = layer.mlp_group();
  const bool has_norms = set(layer.input_norm(), hidden_size, view.input_norm) &&
                         set(layer.mlp_norm(), hidden_size, view.mlp_norm) &&
                         set(layer.attention_output_norm(), hidden_size, view.attention_output_norm) &&
                         set(layer.mlp_output_norm(), hidden_size, view.mlp_output_norm);
  if (!has_norms) return false;
  const Attention* const attention = layer.attention();
  if (attention && has_form(attention->settings(), is_centred(attention->query_norm())) &&
      !set(*attention, hidden_size, view.attention.emplace()))
    return false;
  const auto* mlp = dynamic_cast<const Mlp*>(&layer.feed_forward());
  return !mlp || set(*mlp, hidden_size, view.mlp.emplace());
}

}  // namespace

std::optional<quant::Product> product_of(const Linear& linear, std::optional<Dtype> operand) {
  return linear.column_order() ? std::nullopt : any_product_of(linear, operand);
}

bool view(const Decoder& decoder, ModelView& out) {
  const std::int64_t hidden_size = out.hidden_size = decoder.hidden_size();
  out.first_layer = decoder.first_layer();
  out.operand = from_torch(*decoder.compute().operand).value_or(Dtype::kFloat32);
  out.key_values = decoder.compute().key_values;
  if (decoder.has_embedding()) {
    if (!set(decoder.embedding(), out.embedding) || out.embedding.in_features != hidden_size) return false;
    out.embedding_scale = static_cast<float>(decoder.embedding().scale());
  }
  out.layers.resize(decoder.layers().size());
  for (std::size_t i = 0; i < out.layers.size(); ++i) {
    if (!set(*decoder.layers()[i], hidden_size, out.layers[i])) return false;
  }
  return set(decoder.norm(), hidden_size, out.norm);
}

}  // namespace halfbyte::models::cpu
