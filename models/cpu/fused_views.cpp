#include "models/cpu/fused_views.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "models/cpu/experts.h"
#include "models/cpu/fused_experts.h"

namespace halfbyte::models::cpu {
namespace {

struct Refusal {
  bool (*applies)(const ModelConfig& config, const LayerConfig& layer);
  const char* why;
};
constexpr Refusal kRefusals[] = {
    {[](const ModelConfig&, const LayerConfig& layer) { return layer.mixer != MixerKind::kAttention; },
     "a layer mixes tokens otherwise than by attention to keys and values"},
    {[](const ModelConfig& config, const LayerConfig& layer) {
       return layer.has_experts &&
              (layer.has_mlp_beside || !has_form(config.moe, config.activation) || config.expert_bias);
     },
     "its experts have no form in kernels"},
    {[](const ModelConfig& config, const LayerConfig&) {
       return config.layer_input_size > 0 || config.has_layer_scale;
     },
     "its layers are given more than what the one before gives"},
    {[](const ModelConfig& config, const LayerConfig&) { return config.activation == Activation::kClamped; },
     "its MLPs clamp their gates"},
    {[](const ModelConfig& config, const LayerConfig&) { return config.logit_softcap != 0.0; },
     "its logits are capped"},
};

constexpr const char* kWeights = "its weights do not lie as the kernels read them together";

bool add(const FusedWeight& weight, ProductsView& view) {
  const bool has_order =
      weight.order.empty() || static_cast<std::int64_t>(weight.order.size()) == weight.matrix.in_features;
  return has_order && has_bias_of(weight) && view.add(product_of(weight), weight.order);
}

bool add(const FusedWeightSet& weights, std::span<const ModuleName> modules, ProductsView& view) {
  return std::ranges::all_of(modules, [&](ModuleName module) {
    const FusedWeight* const weight = weights.find(module);
    return !weight || add(*weight, view);
  });
}

// A norm of the model's kind, without a weight yet.
quant::Norm norm_of(const ModelConfig& config) {
  quant::Norm norm;
  norm.epsilon = static_cast<float>(config.norm_eps);
  norm.is_centred = config.is_norm_centred;
  return norm;
}

// No weight: no norm.
bool set(const FusedWeightSet& weights, ModuleName module, const ModelConfig& config, std::int64_t size,
         quant::Norm& norm) {
  norm = {};
  const FusedWeight* const weight = weights.find(module);
  if (!weight) return true;
  const auto& [values, bias] = std::tie(weight->values, weight->bias);
  norm = norm_of(config);
  norm.weight = values.data;
  norm.dtype = values.dtype;
  norm.offset = static_cast<float>(config.norm_offset);
  norm.bias = bias.data;
  return values.count == size && (!bias.data || (bias.count == size && bias.dtype == values.dtype));
}

bool set_sinks(const FusedWeight& weight, std::int64_t heads, std::vector<float>& sinks) {
  sinks.resize(static_cast<std::size_t>(heads));
  if (weight.values.count != heads) return false;
  quant::convert(weight.values.data, weight.values.dtype, reinterpret_cast<std::byte*>(sinks.data()), Dtype::kFloat32,
                 heads);
  return true;
}

bool set(const ModelConfig& config, std::int64_t index, const FusedWeightSet& weights, AttentionView& view) {
  constexpr ModuleName kInputs[] = {&Naming::query, &Naming::key, &Naming::value, &Naming::fused_qkv};
  constexpr ModuleName kOutput[] = {&Naming::attention_output};
  const AttentionSettings& a = view.settings = attention_settings(config, index);
  view.inputs.work = WorkKind::kQkv;
  view.output.work = WorkKind::kAttentionOutput;
  if (!add(weights, kInputs, view.inputs) || !add(weights, kOutput, view.output)) return false;
  const bool is_of_all = a.norm == QueryKeyNorm::kAllHeads;
  if (!set(weights, &Naming::query_norm, config, (is_of_all ? a.heads : 1) * a.head_dim, view.query_norm) ||
      !set(weights, &Naming::key_norm, config, (is_of_all ? a.kv_heads : 1) * a.head_dim, view.key_norm))
    return false;
  if (a.norm != QueryKeyNorm::kNone && !config.has_query_key_weights) {
    view.query_norm = view.key_norm = norm_of(config);
    if (!set_ones((is_of_all ? a.heads : 1) * a.head_dim, view.query_norm) ||
        !set_ones((is_of_all ? a.kv_heads : 1) * a.head_dim, view.key_norm))
      return false;
  }
  if (config.has_value_norm && a.has_own_keys()) {
    view.value_norm = norm_of(config);
    if (!set_ones(a.head_dim, view.value_norm)) return false;
  }
  const FusedWeight* const sinks = weights.find(&Naming::sinks);
  if (sinks && !set_sinks(*sinks, a.heads, view.sinks)) return false;
  return has_form(a, view.query_norm.weight && (view.query_norm.is_centred || view.query_norm.bias)) &&
         fits(view, config.hidden_size);
}

bool set(const ModelConfig& config, const FusedWeightSet& weights, MlpView& view) {
  constexpr ModuleName kInputs[] = {&Naming::gate, &Naming::up, &Naming::fused_gate_up};
  constexpr ModuleName kDown[] = {&Naming::down};
  view.activation = config.activation;
  view.gate_up.work = WorkKind::kGateUp;
  view.down.work = WorkKind::kDown;
  return add(weights, kInputs, view.gate_up) && add(weights, kDown, view.down) && fits(view, config.hidden_size);
}

bool set_between(const ModelConfig& config, std::int64_t index, const FusedLayer& layer, LayerView& view) {
  if (!config.layer(index).has_experts) return set(config, layer.modules, view.mlp.emplace());
  view.experts = FusedExperts::make(config, layer);
  return view.experts != nullptr;
}

bool set(const ModelConfig& config, std::int64_t index, const FusedLayer& layer, LayerView& view) {
  const FusedWeightSet& weights = layer.modules;
  view.is_parallel = config.is_parallel;
  view.is_residual_normalised = config.is_residual_normalised;
  view.residual_scale = static_cast<float>(config.residual_scale);
  const auto norm = [&](ModuleName module, quant::Norm& out) {
    return set(weights, module, config, config.hidden_size, out);
  };
  return norm(&Naming::input_norm, view.input_norm) && norm(&Naming::mlp_norm, view.mlp_norm) &&
         norm(&Naming::attention_output_norm, view.attention_output_norm) &&
         norm(&Naming::mlp_output_norm, view.mlp_output_norm) &&
         set(config, index, weights, view.attention.emplace()) && set_between(config, index, layer, view);
}

}  // namespace

bool has_bias_of(const FusedWeight& weight) {
  return !weight.bias.data || weight.bias.count == weight.matrix.out_features;
}

quant::Product product_of(const FusedWeight& weight) {
  quant::LinearArguments arguments{};
  arguments.input_dtype = weight.operand;
  arguments.output_dtype = Dtype::kFloat32;
  arguments.arithmetic = weight.arithmetic;
  arguments.bias = weight.bias.data;
  arguments.bias_dtype = weight.bias.dtype;
  return {weight.matrix, arguments};
}

quant::Product router_of(const FusedWeight& weight, std::int64_t out_features, std::int64_t in_features) {
  FusedWeight dense = weight;
  dense.matrix.dense_dtype = weight.values.dtype;
  dense.matrix.rows = weight.values.data;
  dense.matrix.out_features = out_features;
  dense.matrix.in_features = in_features;
  return product_of(dense);
}

std::string why_not_fused(const ModelConfig& config) {
  for (const Refusal& refusal : kRefusals) {
    const auto applies = [&](const LayerConfig& layer) { return refusal.applies(config, layer); };
    if (std::ranges::any_of(config.layers, applies)) return refusal.why;
  }
  return "";
}

std::string view(const ModelConfig& config, const FusedWeights& weights, ModelView& out, ProductsView& head) {
  constexpr ModuleName kHead[] = {&Naming::head};
  out.hidden_size = config.hidden_size;
  out.embedding_scale = static_cast<float>(config.embedding_scale);
  const FusedWeight* const embedding = weights.modules.find(&Naming::embedding);
  if (!embedding || !embedding->order.empty() || embedding->matrix.in_features != config.hidden_size) return kWeights;
  out.embedding = embedding->matrix;
  out.layers.resize(weights.layers.size());
  for (std::size_t i = 0; i < out.layers.size(); ++i) {
    if (!set(config, static_cast<std::int64_t>(i), weights.layers[i], out.layers[i])) return kWeights;
  }
  head.work = WorkKind::kHead;
  const bool has_head = add(weights.modules, kHead, head) && head.count == 1 &&
                        head.products[0].weight.in_features == config.hidden_size &&
                        head.out_features(0) == config.vocab_size;
  return has_head && set(weights.modules, &Naming::final_norm, config, config.hidden_size, out.norm) ? "" : kWeights;
}

}  // namespace halfbyte::models::cpu
