#include "convert/synth_shapes.h"

#include <algorithm>
#include <array>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

struct Shape {
  std::string_view name;
  const char* config;  // of the text model alone
};

// Source: each model's published config.json, less what says nothing about its tensors or its arithmetic.
constexpr auto kShapes = std::to_array<Shape>({
    {"tiny", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "intermediate_size": 352, "vocab_size": 512, "max_position_embeddings": 256, "rms_norm_eps": 1e-05,
      "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
      "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2})"},
    {"llama-1.1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 64, "intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 2048,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
      "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2})"},
    {"llama-7b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
      "head_dim": 128, "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
      "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2})"},
    {"llama-3.2-1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
      "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": true,
      "bos_token_id": 128000, "eos_token_id": 128001})"},
    {"llama-3.1-8b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0,
      "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false,
      "bos_token_id": 128000, "eos_token_id": 128001})"},
    {"qwen3-0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960,
      "rms_norm_eps": 1e-06, "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": false,
      "use_sliding_window": false, "tie_word_embeddings": true, "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3-4b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936, "max_position_embeddings": 40960,
      "rms_norm_eps": 1e-06, "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": false,
      "use_sliding_window": false, "tie_word_embeddings": true, "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3-30b-a3b", R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
      "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
      "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "hidden_act": "silu", "attention_bias": false, "use_sliding_window": false, "tie_word_embeddings": false,
      "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3.6-35b-a3b", R"({"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
      "hidden_size": 2048, "num_hidden_layers": 40, "full_attention_interval": 4, "num_attention_heads": 16,
      "num_key_value_heads": 2, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 256,
      "num_experts_per_tok": 8, "vocab_size": 248320, "max_position_embeddings": 262144, "rms_norm_eps": 1e-06,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
      "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false, "eos_token_id": 248046})"},
    {"mixtral", R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "hidden_act": "silu",
      "sliding_window": null, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2})"},
    {"gpt-oss-20b", R"({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
      "hidden_size": 2880, "num_hidden_layers": 24, "layer_types": ["sliding_attention", "full_attention",
      "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
      "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
      "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
      "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
      "sliding_attention", "full_attention"], "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088,
      "max_position_embeddings": 131072, "sliding_window": 128, "rms_norm_eps": 1e-05, "rope_theta": 150000,
      "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
      "original_max_position_embeddings": 4096, "truncate": false}, "swiglu_limit": 7.0, "hidden_act": "silu",
      "attention_bias": true, "tie_word_embeddings": false, "eos_token_id": 200002})"},
    {"gemma-3-1b", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
      "hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
      "head_dim": 256, "intermediate_size": 6912, "vocab_size": 262144, "max_position_embeddings": 32768,
      "sliding_window": 512, "sliding_window_pattern": 6, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
      "rope_local_base_freq": 10000, "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh",
      "attention_bias": false, "bos_token_id": 2, "eos_token_id": 1})"},
    {"gemma-4-26b-a4b", R"({"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text",
      "hidden_size": 2816, "num_hidden_layers": 30, "layer_types": ["sliding_attention", "sliding_attention",
      "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
      "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
      "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
      "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
      "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
      "sliding_attention", "sliding_attention", "full_attention"], "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 256, "num_global_key_value_heads": 2, "global_head_dim": 512,
      "attention_k_eq_v": true, "enable_moe_block": true, "intermediate_size": 2112, "moe_intermediate_size": 704,
      "num_experts": 128, "top_k_experts": 8, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
      "vocab_size": 262144, "max_position_embeddings": 262144, "sliding_window": 1024, "rms_norm_eps": 1e-06,
      "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
      "partial_rotary_factor": 0.25}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
      "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
      "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1})"},
    {"deepseek-v3", R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
      "hidden_size": 7168, "num_hidden_layers": 61, "first_k_dense_replace": 3, "moe_layer_freq": 1,
      "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
      "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "n_group": 8, "topk_group": 4,
      "num_experts_per_tok": 8, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
      "topk_method": "noaux_tc", "vocab_size": 129280, "max_position_embeddings": 163840, "rms_norm_eps": 1e-06,
      "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
      "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}, "hidden_act": "silu",
      "attention_bias": false, "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 1})"},
});

constexpr auto kNames = [] {
  std::array<std::string_view, kShapes.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = kShapes[i].name;
  return out;
}();

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

const Shape& shape_or_fail(const std::string& like) {
  const auto row = std::ranges::find(kShapes, like, &Shape::name);
  if (row != kShapes.end()) return *row;
  std::string known;
  for (const std::string_view name : kNames) known += (known.empty() ? "" : ", ") + std::string(name);
  invalid("there is no shape " + files::in_quotes(like) + "; there are " + known);
}

bool has_stacks(const models::Naming& naming) { return !naming.stacked_down.empty(); }

}  // namespace

void choose_naming(const models::Architecture& family, const std::string& like, SynthExperts experts,
                   models::ModelConfig& config) {
  if (experts == SynthExperts::kUsual) return;
  if (std::ranges::none_of(config.layers, &models::LayerConfig::has_experts))
    invalid("the layers of " + like + " that were asked for have no experts");
  const bool are_stacked = experts == SynthExperts::kStacked;
  const auto row =
      std::ranges::find_if(family.namings, [&](const auto& naming) { return has_stacks(naming) == are_stacked; });
  if (row == family.namings.end())
    invalid("experts of " + like + " are " + (are_stacked ? "never" : "always") + " stacked in one tensor");
  config.naming = &*row;
}

std::span<const std::string_view> synth_shapes() noexcept { return kNames; }

nlohmann::ordered_json synth_config(const std::string& like, std::int64_t layers) {
  auto out = nlohmann::ordered_json::parse(shape_or_fail(like).config);
  if (layers == 0) return out;
  const auto all = out["num_hidden_layers"].get<std::int64_t>();
  if (layers < 0 || layers > all) invalid(std::to_string(layers) + " layers: " + like + " has " + std::to_string(all));
  out["num_hidden_layers"] = layers;
  if (const auto types = out.find("layer_types"); types != out.end())
    types->erase(types->begin() + static_cast<std::ptrdiff_t>(layers), types->end());
  return out;
}

}  // namespace halfbyte::convert
