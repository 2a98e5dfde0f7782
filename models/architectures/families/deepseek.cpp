// DeepSeek.
#include <cmath>

#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"
#include "models/json/printable.h"

namespace halfbyte::models::family_rows {
namespace {

// Scores grow by what yarn makes of "mscale_all_dim", squared: of queries and keys alike.
double scale_of(const ConfigReader& config, const ModelConfig& model) {
  const double usual = 1.0 / std::sqrt(static_cast<double>(model.latent.query_dim()));
  const auto scaling = rope_scaling_of(config);
  const double all = scaling ? scaling->number_or("mscale_all_dim", 0.0, 0.0, 1e6) : 0.0;
  const RopeConfig& rope = model.ropes.front();
  if (rope.type == RopeType::kDefault) return usual;
  const double grown = yarn_scale(rope.factor, all);
  return usual * grown * grown;
}

void configure_latent(const ConfigReader& config, ModelConfig& model, std::int64_t usual_query_rank) {
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", false);
  LatentConfig& latent = model.latent;
  const bool has_query_rank = !config.is_given("q_lora_rank") || config.has("q_lora_rank");
  if (has_query_rank) latent.query_rank = config.integer_or("q_lora_rank", usual_query_rank, 1, kMaxSize);
  latent.rank = config.integer_or("kv_lora_rank", 512, 1, kMaxSize);
  latent.plain_dim = config.integer_or("qk_nope_head_dim", 128, 1, kMaxSize);
  latent.turned_dim = model.head_dim;
  latent.value_dim = config.integer_or("v_head_dim", 128, 1, kMaxSize);
  model.query_scale = scale_of(config, model);
  model.ropes.front().is_interleaved = config.boolean_or("rope_interleave", true);
  for (LayerConfig& layer : model.layers) layer.mixer = MixerKind::kLatent;
}

void choose_deepseek_experts(const ConfigReader& config, ModelConfig& model, std::int64_t usual_shared) {
  choose_experts(config, model);
  MoeConfig& moe = model.moe;
  moe.intermediate_size = config.integer("moe_intermediate_size", 1, kMaxSize);
  moe.shared_size = moe.intermediate_size * config.integer_or("n_shared_experts", usual_shared, 0, 1024);
}

void configure_deepseek_v2(const ConfigReader& config, ModelConfig& model) {
  configure_latent(config, model, 1536);
  model.mlp_bias = config.boolean_or("mlp_bias", false);
  choose_deepseek_experts(config, model, 2);
  begin_dense(config.integer_or("first_k_dense_replace", 0, 0, kMaxLayers), model);
  model.moe.group_best = 1;
  const std::string method = config.string_or("topk_method", "greedy");
  if (method == "group_limited_greedy") choose_groups(config, model);
  if (method != "group_limited_greedy" && method != "greedy")
    throw Error(ErrorCode::kUnsupported, "config.json: \"topk_method\" is " + in_quotes(method) +
                                             "; greedy and group_limited_greedy are supported");
  // Its implementations leave "norm_topk_prob" out.
  model.moe.is_normalised = false;
  model.moe.scale = config.number_or("routed_scaling_factor", 1.0, 1e-9, 1e9);
}

void configure_deepseek_v3(const ConfigReader& config, ModelConfig& model) {
  configure_latent(config, model, 1536);
  model.layers_ahead = config.integer_or("num_nextn_predict_layers", 0, 0, kMaxLayers);
  choose_deepseek_experts(config, model, 1);
  begin_dense(config.integer_or("first_k_dense_replace", 3, 0, kMaxLayers), model);
  model.moe.scoring = Scoring::kSigmoid;
  model.moe.has_correction = true;
  choose_groups(config, model, 8, 4);
  model.moe.is_normalised = config.boolean_or("norm_topk_prob", true);
  model.moe.scale = config.number_or("routed_scaling_factor", 2.5, 1e-9, 1e9);
}

constexpr Naming with_latents(Naming names) {
  names.latent_query = "q_proj";
  names.latent_query_down = "q_a_proj";
  names.latent_query_norm = "q_a_layernorm";
  names.latent_query_up = "q_b_proj";
  names.latent_down = "kv_a_proj_with_mqa";
  names.latent_norm = "kv_a_layernorm";
  names.latent_up = "kv_b_proj";
  names.latent_output = "o_proj";
  return names;
}

constexpr std::array kDeepseekNames = {with_latents(kExpertsInMlp), with_latents(kStackedExperts)};
constexpr ConfigKeys kDeepseekKeys = {.head_dim = "qk_rope_head_dim"};

}  // namespace

extern constinit const Family kDeepseekV2 = {
    .model_type = "deepseek_v2",
    .class_name = "DeepseekV2ForCausalLM",
    .label = "deepseek_v2",
    .models = "DeepSeek V2",
    .particular = "keys and values of all heads are made from a latent vector a token; experts among groups",
    .namings = kDeepseekNames,
    .keys = kDeepseekKeys,
    .defaults = {.head_dim = 64},
    .configure = configure_deepseek_v2};

extern constinit const Family kDeepseekV3 = {
    .model_type = "deepseek_v3",
    .class_name = "DeepseekV3ForCausalLM",
    .label = "deepseek_v3",
    .models = "DeepSeek V3 and R1 in 16 bits (they are published in FP8, which is not read)",
    .particular = "as DeepSeek V2; experts chosen by sigmoid with a correction",
    .namings = kDeepseekNames,
    .keys = kDeepseekKeys,
    .defaults = {.head_dim = 64, .max_position_embeddings = 4096},
    .configure = configure_deepseek_v3};

}  // namespace halfbyte::models::family_rows
