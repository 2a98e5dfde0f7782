#include "models/architectures/llama.h"

#include <array>
#include <utility>

#include <halfbyte/error.h>

#include "models/architectures/config_reader.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kMaxSize = 1 << 24;  // of any one dimension of a model
constexpr std::int64_t kMaxLayers = 1 << 10;

constexpr auto kTensors = std::to_array<TensorPattern>({
    {"model.embed_tokens.weight", Role::kEmbedding},
    {"model.layers.{}.self_attn.q_proj.weight", Role::kLinear},
    {"model.layers.{}.self_attn.k_proj.weight", Role::kLinear},
    {"model.layers.{}.self_attn.v_proj.weight", Role::kLinear},
    {"model.layers.{}.self_attn.o_proj.weight", Role::kLinear},
    {"model.layers.{}.mlp.gate_proj.weight", Role::kLinear},
    {"model.layers.{}.mlp.up_proj.weight", Role::kLinear},
    {"model.layers.{}.mlp.down_proj.weight", Role::kLinear},
    {"model.layers.{}.self_attn.q_proj.bias", Role::kBias},
    {"model.layers.{}.self_attn.k_proj.bias", Role::kBias},
    {"model.layers.{}.self_attn.v_proj.bias", Role::kBias},
    {"model.layers.{}.self_attn.o_proj.bias", Role::kBias},
    {"model.layers.{}.mlp.gate_proj.bias", Role::kBias},
    {"model.layers.{}.mlp.up_proj.bias", Role::kBias},
    {"model.layers.{}.mlp.down_proj.bias", Role::kBias},
    {"model.layers.{}.input_layernorm.weight", Role::kNorm},
    {"model.layers.{}.post_attention_layernorm.weight", Role::kNorm},
    {"model.norm.weight", Role::kNorm},
    {"lm_head.weight", Role::kHead},
    // Written by old versions of transformers; the model derives it.
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", Role::kBuffer},
    {"model.rotary_emb.inv_freq", Role::kBuffer},
});

struct RopeName {
  std::string_view name;
  RopeType type;
};

constexpr auto kRopeTypes = std::to_array<RopeName>({
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"llama3", RopeType::kLlama3},
});

RopeType rope_type(const std::string& name) {
  for (const RopeName& row : kRopeTypes) {
    if (row.name == name) return row.type;
  }
  throw Error(ErrorCode::kUnsupported,
              "config.json: rope scaling \"" + name + "\" is not supported; default, linear and llama3 are");
}

// Three spellings: "rope_parameters" (transformers 5), "rope_scaling" with "rope_type" or (older) "type".
// Source: transformers modeling_rope_utils.py.
RopeConfig parse_rope(const ConfigReader& config, const ModelConfig& model) {
  RopeConfig rope;
  rope.rotary_dim = model.head_dim;
  rope.original_max_position_embeddings = model.max_position_embeddings;
  rope.theta = config.number_or("rope_theta", rope.theta, 1.0, 1e12);
  auto scaling = config.object("rope_parameters");
  if (!scaling) scaling = config.object("rope_scaling");
  if (!scaling) return rope;
  rope.theta = scaling->number_or("rope_theta", rope.theta, 1.0, 1e12);
  rope.type = rope_type(scaling->string_or("rope_type", scaling->string_or("type", "default")));
  if (rope.type == RopeType::kDefault) return rope;
  rope.factor = scaling->number("factor", 1.0, 1e6);
  if (rope.type != RopeType::kLlama3) return rope;
  rope.low_freq_factor = scaling->number("low_freq_factor", 1e-6, 1e6);
  rope.high_freq_factor = scaling->number("high_freq_factor", 1e-6, 1e6);
  rope.original_max_position_embeddings = scaling->integer("original_max_position_embeddings", 1, kMaxSize);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    throw Error(ErrorCode::kCorrupt, "config.json: rope \"high_freq_factor\" must be greater than \"low_freq_factor\"");
  }
  return rope;
}

void check_heads(const ModelConfig& model) {
  if (model.num_attention_heads % model.num_key_value_heads != 0) {
    throw Error(ErrorCode::kCorrupt, "config.json: \"num_attention_heads\" (" +
                                         std::to_string(model.num_attention_heads) +
                                         ") is not a multiple of \"num_key_value_heads\" (" +
                                         std::to_string(model.num_key_value_heads) + ")");
  }
  if (model.head_dim % 2 != 0) {
    throw Error(ErrorCode::kCorrupt, "config.json: head_dim " + std::to_string(model.head_dim) +
                                         " is odd; rotary embedding needs an even one");
  }
}

void check_activation(const ConfigReader& config) {
  const std::string activation = config.string_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    throw Error(ErrorCode::kUnsupported,
                "config.json: \"hidden_act\" is \"" + activation + "\"; Llama models use silu");
  }
}

ModelConfig parse(const nlohmann::json& json) {
  const ConfigReader config(json, "config.json");
  ModelConfig model;
  model.model_type = config.string_or("model_type", "llama");
  model.hidden_size = config.integer("hidden_size", 1, kMaxSize);
  model.intermediate_size = config.integer("intermediate_size", 1, kMaxSize);
  model.num_hidden_layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  model.num_attention_heads = config.integer("num_attention_heads", 1, kMaxSize);
  model.num_key_value_heads = config.integer_or("num_key_value_heads", model.num_attention_heads, 1, kMaxSize);
  model.head_dim = config.integer_or("head_dim", model.hidden_size / model.num_attention_heads, 1, kMaxSize);
  model.vocab_size = config.integer("vocab_size", 1, kMaxSize);
  model.max_position_embeddings = config.integer_or("max_position_embeddings", 2048, 1, kMaxSize);
  model.rms_norm_eps = config.number_or("rms_norm_eps", 1e-6, 0.0, 1.0);
  model.attention_bias = config.boolean_or("attention_bias", false);
  model.mlp_bias = config.boolean_or("mlp_bias", false);
  model.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  check_activation(config);
  check_heads(model);
  model.rope = parse_rope(config, model);
  const auto bos = config.token_ids("bos_token_id");
  if (!bos.empty()) model.bos_token_id = bos.front();
  model.eos_token_ids = config.token_ids("eos_token_id");
  return model;
}

struct LayerTensor {
  std::string_view suffix;
  std::int64_t out_features;
  std::int64_t in_features;  // 0: a vector (norm)
  bool has_bias;
};

void append_layer(const std::string& prefix, std::span<const LayerTensor> parts, std::vector<ExpectedTensor>& out) {
  for (const LayerTensor& part : parts) {
    const std::string name = prefix + std::string(part.suffix);
    if (part.in_features == 0) {
      out.push_back({name + ".weight", {part.out_features}, Role::kNorm});
    } else {
      out.push_back({name + ".weight", {part.out_features, part.in_features}, Role::kLinear});
    }
    if (part.has_bias) out.push_back({name + ".bias", {part.out_features}, Role::kBias});
  }
}

std::vector<ExpectedTensor> expected(const ModelConfig& model) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t ffn = model.intermediate_size;
  const std::int64_t query = model.num_attention_heads * model.head_dim;
  const std::int64_t key = model.num_key_value_heads * model.head_dim;
  const auto parts = std::to_array<LayerTensor>({
      {"input_layernorm", hidden, 0, false},
      {"self_attn.q_proj", query, hidden, model.attention_bias},
      {"self_attn.k_proj", key, hidden, model.attention_bias},
      {"self_attn.v_proj", key, hidden, model.attention_bias},
      {"self_attn.o_proj", hidden, query, model.attention_bias},
      {"post_attention_layernorm", hidden, 0, false},
      {"mlp.gate_proj", ffn, hidden, model.mlp_bias},
      {"mlp.up_proj", ffn, hidden, model.mlp_bias},
      {"mlp.down_proj", hidden, ffn, model.mlp_bias},
  });
  std::vector<ExpectedTensor> out;
  out.push_back({"model.embed_tokens.weight", {model.vocab_size, hidden}, Role::kEmbedding});
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    append_layer("model.layers." + std::to_string(layer) + ".", parts, out);
  }
  out.push_back({"model.norm.weight", {hidden}, Role::kNorm});
  out.push_back({"lm_head.weight", {model.vocab_size, hidden}, Role::kHead});
  return out;
}

nlohmann::json rope_inputs(const RopeConfig& rope) {
  nlohmann::json inputs = {{"rope_type", kRopeTypes[static_cast<std::size_t>(rope.type)].name},
                           {"rope_theta", rope.theta},
                           {"rotary_dim", rope.rotary_dim}};
  if (rope.type == RopeType::kDefault) return inputs;
  inputs["factor"] = rope.factor;
  if (rope.type != RopeType::kLlama3) return inputs;
  inputs["low_freq_factor"] = rope.low_freq_factor;
  inputs["high_freq_factor"] = rope.high_freq_factor;
  inputs["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  return inputs;
}

std::vector<DerivedBuffer> derived(const ModelConfig& model) {
  return {{"model.rotary_emb.inv_freq", Dtype::kFloat32, "rope", rope_inputs(model.rope)}};
}

std::vector<std::pair<std::string, std::string>> ties(const ModelConfig& model) {
  if (!model.tie_word_embeddings) return {};
  return {{"lm_head.weight", "model.embed_tokens.weight"}};
}

}  // namespace

const Architecture kLlama = {"llama", "LlamaForCausalLM", kTensors, parse, expected, derived, ties};

}  // namespace halfbyte::models
