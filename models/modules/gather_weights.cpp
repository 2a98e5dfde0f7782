#include "models/modules/tensor_source.h"

namespace halfbyte::models {
namespace {

class Gatherer {
 public:
  Gatherer(const ModelConfig& config, TensorSource& source)
      : config_(config), names_(*config.naming), source_(source) {}

  ModelWeights all() {
    ModelWeights weights;
    weights.embedding = parameter("", names_.embedding);
    for (std::int64_t index = 0; index < config_.num_hidden_layers; ++index) weights.layers.push_back(layer(index));
    if (config_.has_final_norm) weights.norm = parameter("", names_.final_norm);
    weights.head = source_.linear(std::string(names_.head), false);
    weights.rotary_buffer_dtype = source_.derived_buffer_dtype(std::string(names_.rotary) + ".inv_freq");
    return weights;
  }

 private:
  at::Tensor parameter(const std::string& path, std::string_view name) {
    return source_.parameter(path + std::string(name) + ".weight");
  }

  LinearWeights linear(const std::string& path, std::string_view name, bool has_bias) {
    return source_.linear(path + std::string(name), has_bias);
  }

  AttentionWeights attention(const std::string& path) {
    AttentionWeights weights;
    if (config_.qkv == QkvLayout::kSeparate) {
      for (const std::string_view name : {names_.query, names_.key, names_.value}) {
        weights.inputs.push_back(linear(path, name, config_.qkv_bias));
      }
    } else {
      weights.inputs.push_back(linear(path, names_.fused_qkv, config_.qkv_bias));
    }
    if (config_.has_query_key_norm) {
      weights.query_norm = parameter(path, names_.query_norm);
      weights.key_norm = parameter(path, names_.key_norm);
    }
    weights.output = linear(path, names_.attention_output, config_.output_bias);
    return weights;
  }

  MlpWeights mlp(const std::string& path) {
    MlpWeights weights;
    if (config_.is_gate_up_fused) {
      weights.inputs.push_back(linear(path, names_.fused_gate_up, config_.mlp_bias));
    } else {
      weights.inputs.push_back(linear(path, names_.gate, config_.mlp_bias));
      weights.inputs.push_back(linear(path, names_.up, config_.mlp_bias));
    }
    weights.down = linear(path, names_.down, config_.mlp_bias);
    return weights;
  }

  MlpWeights expert(const std::string& path, std::int64_t index) {
    MlpWeights weights;
    if (!names_.stacked_gate_up.empty()) {
      weights.inputs.push_back(source_.stacked(path + std::string(names_.stacked_gate_up), index));
      weights.down = source_.stacked(path + std::string(names_.stacked_down), index);
      return weights;
    }
    const std::string each = path + std::to_string(index) + ".";
    weights.inputs.push_back(linear(each, names_.expert_gate, false));
    weights.inputs.push_back(linear(each, names_.expert_up, false));
    weights.down = linear(each, names_.expert_down, false);
    return weights;
  }

  MoeWeights experts(const std::string& path) {
    MoeWeights weights;
    weights.router = {parameter(path, names_.router), std::nullopt};
    for (std::int64_t index = 0; index < config_.moe.num_experts; ++index) {
      weights.experts.push_back(expert(path + std::string(names_.experts) + ".", index));
    }
    return weights;
  }

  LayerWeights layer(std::int64_t index) {
    const std::string path = names_.layer(index);
    LayerWeights weights;
    weights.input_norm = parameter(path, names_.input_norm);
    weights.attention = attention(path + std::string(names_.attention) + ".");
    if (config_.has_output_norms) weights.attention_output_norm = parameter(path, names_.attention_output_norm);
    weights.mlp_norm = parameter(path, names_.mlp_norm);
    if (config_.has_experts(index)) {
      weights.feed_forward = experts(path + std::string(names_.moe) + ".");
    } else {
      weights.feed_forward = mlp(path + std::string(names_.mlp) + ".");
    }
    if (config_.has_output_norms) weights.mlp_output_norm = parameter(path, names_.mlp_output_norm);
    return weights;
  }

  const ModelConfig& config_;
  const Naming& names_;
  TensorSource& source_;
};

}  // namespace

ModelWeights gather_weights(const ModelConfig& config, TensorSource& source) { return Gatherer(config, source).all(); }

}  // namespace halfbyte::models
