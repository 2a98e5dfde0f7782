// What config.json of some families says otherwise than that of most. Source: ggml-org/llama.cpp, conversion/ and
// src/models/, a file of each architecture.
#include <algorithm>
#include <array>
#include <cmath>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/config_builder.h"
#include "loader/files/formats/gguf/rope.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;

constexpr ToldByTensor kChatglmBiases[] = {{"add_qkv_bias", "blk.0.attn_qkv.bias"},
                                           {"add_bias_linear", "blk.0.attn_output.bias"}};
constexpr ToldByTensor kSeedBiases[] = {{"attention_bias", "blk.0.attn_q.bias"},
                                        {"attention_out_bias", "blk.0.attn_output.bias"}};
constexpr ToldByTensor kErnieBiases[] = {{"use_bias", "blk.0.attn_q.bias"}};
constexpr ToldByTensor kPhimoeBiases[] = {{"attention_bias", "blk.0.attn_q.bias"}, {"lm_head_bias", "output.bias"}};
constexpr ToldByTensor kGlm4MoeParts[] = {{"attention_bias", "blk.0.attn_q.bias"},
                                          {"use_qk_norm", "blk.0.attn_q_norm.weight"}};

void add_chatglm(ConfigBuilder& config) {
  config.out["multi_query_attention"] = true;
  config.out["rmsnorm"] = true;
  config.out["post_layer_norm"] = true;
  config.out["apply_residual_connection_post_layernorm"] = false;
}

// Where the file does not say, what llama.cpp takes and not what transformers does.
void add_granite(ConfigBuilder& config) {
  config.out["attention_multiplier"] = 1 / std::sqrt(static_cast<double>(config.head_dim));
}

// YaRN's factor of attention, as llama.cpp's converter gives it.
void add_ministral3(ConfigBuilder& config) {
  const auto all = config.number("rope.scaling.yarn_log_multiplier");
  if (!all || !config.out.contains("rope_scaling")) return;
  config.out["rope_scaling"]["mscale"] = 1.0;
  config.out["rope_scaling"]["mscale_all_dim"] = *all;
}

// Without scaling config.json would mean its family's usual one.
void add_gpt_oss(ConfigBuilder& config) {
  ordered_json& out = config.out;
  if (!out.contains("rope_scaling")) out["rope_scaling"] = {{"rope_type", "default"}};
  if (out["rope_scaling"]["rope_type"] == "yarn") out["rope_scaling"]["truncate"] = false;
}

constexpr std::int64_t kLlama4Chunk = 8192, kLlama4Every = 4, kLlama4UnnormedExperts = 128;

void add_llama4(ConfigBuilder& config) {
  ordered_json& out = config.out;
  out["intermediate_size_mlp"] = config.needed("feed_forward_length");
  out["intermediate_size"] = config.needed("expert_feed_forward_length");
  out["interleave_moe_layer_step"] = config.needed("interleave_moe_layer_step");
  out["use_qk_norm"] = config.needed("expert_count") != kLlama4UnnormedExperts;
  const bool sees_all = config.integer("attention.sliding_window").value_or(1) == 0;
  out["attention_chunk_size"] = sees_all ? ordered_json(nullptr) : ordered_json(kLlama4Chunk);
  out["attn_temperature_tuning"] = !sees_all;
  ordered_json types = ordered_json::array(), turn = ordered_json::array();
  for (std::int64_t layer = 1; layer <= std::min(config.layers, models::kMaxLayers); ++layer)
    turn.push_back(sees_all || layer % kLlama4Every != 0 ? 1 : 0);
  if (config.layers <= models::kMaxLayers) {
    for (const bool is_chunked : sliding_layers(config))
      types.push_back(is_chunked && !sees_all ? "chunked_attention" : kSeesAll);
  }
  out["no_rope_layers"] = std::move(turn);
  out["layer_types"] = std::move(types);
}

// Layers without key heads are convolutions.
void add_lfm2(ConfigBuilder& config) {
  const auto heads = config.each_layer("attention.head_count_kv");
  if (!heads || heads->empty()) config.missing("attention.head_count_kv");
  ordered_json& out = config.out;
  ordered_json types = ordered_json::array();
  for (const std::int64_t each : *heads) types.push_back(each > 0 ? kSeesAll : "conv");
  out["layer_types"] = std::move(types);
  out["num_key_value_heads"] = std::max<std::int64_t>(std::ranges::max(*heads), 1);
  out["block_auto_adjust_ff_dim"] = false;
  out["conv_L_cache"] = config.needed("shortconv.l_cache");
  add_gguf_rope(config.parts, config.prefix, out, config.notes);
}

// Files of before the latent was cached have sizes of whole heads under the keys that now have the latent's.
void add_deepseek(ConfigBuilder& config) {
  ordered_json& out = config.out;
  const auto size_of = [&](const char* key) {
    const auto whole = config.integer(std::string(key) + "_mla");
    return whole ? *whole : config.needed(key);
  };
  const std::int64_t turned = config.needed("rope.dimension_count"), keys = size_of("attention.key_length");
  if (keys <= turned)
    config.file.fail(ErrorCode::kCorrupt, "keys of " + std::to_string(keys) + " values, of which " +
                                              std::to_string(turned) + " turn; more than those must be there");
  out["qk_rope_head_dim"] = turned;
  out["qk_nope_head_dim"] = keys - turned;
  out["v_head_dim"] = size_of("attention.value_length");
  out["kv_lora_rank"] = config.needed("attention.kv_lora_rank");
  const auto rank = config.integer("attention.q_lora_rank");
  out["q_lora_rank"] = rank.value_or(0) > 0 ? ordered_json(*rank) : ordered_json(nullptr);
  out["num_key_value_heads"] = config.heads;
  add_gguf_rope(config.parts, config.prefix, out, config.notes);
  const auto all = config.number("rope.scaling.yarn_log_multiplier");
  if (!all || !out.contains("rope_scaling")) return;
  const double mscale = std::round(*all * 1e7) / 1e6;
  out["rope_scaling"]["mscale"] = mscale;
  out["rope_scaling"]["mscale_all_dim"] = mscale;
}

void add_deepseek_v2(ConfigBuilder& config) {
  add_deepseek(config);
  const bool has_groups = config.integer("expert_group_count").value_or(1) > 1;
  config.out["topk_method"] = has_groups ? "group_limited_greedy" : "greedy";
}

// Which layers mix by the delta rule, and its sizes.
void add_delta(ConfigBuilder& config) {
  ordered_json& out = config.out;
  const std::int64_t heads = config.needed("ssm.time_step_rank"), values = config.needed("ssm.inner_size");
  if (heads < 1 || values % heads != 0)
    config.file.fail(ErrorCode::kCorrupt, std::to_string(values) + " values that " + std::to_string(heads) +
                                              " heads of the delta rule do not share");
  out["linear_num_key_heads"] = config.needed("ssm.group_count");
  out["linear_num_value_heads"] = heads;
  out["linear_key_head_dim"] = config.needed("ssm.state_size");
  out["linear_value_head_dim"] = values / heads;
  out["linear_conv_kernel_dim"] = config.needed("ssm.conv_kernel");
  constexpr const char* kRecurrent = "attention.recurrent_layers";
  if (!config.file.has(config.prefix + kRecurrent)) {
    out["full_attention_interval"] = config.integer("full_attention_interval").value_or(4);
    return;
  }
  ordered_json types = ordered_json::array();
  const std::vector<std::int64_t> are_recurrent = *config.each_layer(kRecurrent);
  for (const std::int64_t is_recurrent : are_recurrent) types.push_back(is_recurrent ? "linear_attention" : kSeesAll);
  out["layer_types"] = std::move(types);
}

void add_delta_moe(ConfigBuilder& config) {
  add_delta(config);
  const GgufTensor* beside = find_tensor(config.parts, "blk.0.ffn_up_shexp.weight");
  const auto size = config.integer("expert_shared_feed_forward_length");
  if (size || (beside && !beside->shape.empty()))
    config.out["shared_expert_intermediate_size"] = size ? *size : beside->shape.front();
}

// Layers that see everything have heads of their own.
void add_gemma4_heads(ConfigBuilder& config, const std::vector<bool>& slides) {
  ordered_json& out = config.out;
  const auto key_heads = config.each_layer("attention.head_count_kv");
  if (!key_heads) config.missing("attention.head_count_kv");
  const std::int64_t full_dim = config.needed("attention.key_length");
  const std::int64_t own_dim = config.integer("attention.key_length_swa").value_or(full_dim);
  out["head_dim"] = own_dim;
  out["global_head_dim"] = full_dim;
  for (std::size_t layer = slides.size(); layer > 0; --layer) {
    const char* key = slides[layer - 1] ? "num_key_value_heads" : "num_global_key_value_heads";
    out[key] = key_heads->at(layer - 1);
    const bool has_keys = config.has_tensor("blk." + std::to_string(layer - 1) + ".attn_k.weight");
    if (!slides[layer - 1] && has_keys)
      out["attention_k_eq_v"] = !config.has_tensor("blk." + std::to_string(layer - 1) + ".attn_v.weight");
  }
  if (!out.contains("num_key_value_heads")) out["num_key_value_heads"] = key_heads->empty() ? 1 : key_heads->front();
}

void add_gemma4_rope(ConfigBuilder& config) {
  ordered_json& out = config.out;
  const double theta = config.number("rope.freq_base").value_or(1e6);
  ordered_json full = {{"rope_type", "default"}, {"rope_theta", theta}};
  if (config.has_tensor("rope_freqs.weight")) {  // of pairs that stay it is beyond all bounds
    const std::vector<float> divisors = gguf_values(config.parts, "rope_freqs.weight");
    const auto turning = static_cast<double>(std::ranges::count(divisors, 1.0F));
    full["rope_type"] = "proportional";
    full["partial_rotary_factor"] = turning / static_cast<double>(divisors.size());
  }
  const double own = config.number("rope.freq_base_swa").value_or(1e4);
  out["rope_parameters"] = {{kSeesAll, full}, {kSlides, {{"rope_type", "default"}, {"rope_theta", own}}}};
}

void add_gemma4(ConfigBuilder& config) {
  ordered_json& out = config.out;
  const std::vector<bool> slides = config.layers > models::kMaxLayers ? std::vector<bool>() : sliding_layers(config);
  add_gemma4_heads(config, slides);
  add_gemma4_rope(config);
  if (!out.contains("final_logit_softcapping")) out["final_logit_softcapping"] = 30.0;  // as llama.cpp has it
  out["num_kv_shared_layers"] = config.integer("attention.shared_kv_layers").value_or(0);
  const std::int64_t input = config.integer("embedding_length_per_layer_input").value_or(0);
  out["hidden_size_per_layer_input"] = input;
  const auto vocabulary = out["vocab_size"].get<std::int64_t>();
  out["vocab_size_per_layer_input"] = vocabulary;
  const auto inner = config.each_layer("feed_forward_length");
  if (inner && !inner->empty()) out["use_double_wide_mlp"] = inner->back() == 2 * inner->front();
  out["enable_moe_block"] = config.integer("expert_count").value_or(0) > 0;
  if (const auto chosen = config.integer("expert_used_count")) out["top_k_experts"] = *chosen;
}

constexpr auto kRows = std::to_array<Particulars>({
    {.model_type = "chatglm", .told = kChatglmBiases, .add = add_chatglm},
    {.model_type = "cohere2", .has_window = true},
    {.model_type = "deepseek_v2",
     .told = {},
     .add = add_deepseek_v2,
     .expert_count = "n_routed_experts",
     .has_own_heads = true},
    {.model_type = "deepseek_v3",
     .told = {},
     .add = add_deepseek,
     .expert_count = "n_routed_experts",
     .has_own_heads = true},
    {.model_type = "ernie4_5", .told = kErnieBiases},
    {.model_type = "exaone4", .told = {}, .has_window = true, .usual_window = {64, 4096}},  // as llama.cpp has it
    {.model_type = "gemma2", .has_window = true},
    {.model_type = "gemma3_text", .has_window = true},
    {.model_type = "gemma4_text", .add = add_gemma4, .has_window = true, .has_own_heads = true},
    {.model_type = "glm4_moe", .told = kGlm4MoeParts, .expert_count = "n_routed_experts"},
    {.model_type = "gpt_oss",
     .add = add_gpt_oss,
     .has_window = true,
     .expert_count = "num_local_experts",
     .has_expert_sizes = false},
    {.model_type = "granite", .add = add_granite},
    {.model_type = "granitemoe", .add = add_granite, .expert_count = "num_local_experts", .has_expert_sizes = false},
    {.model_type = "lfm2", .told = {}, .add = add_lfm2, .has_own_heads = true},
    {.model_type = "llama4_text", .add = add_llama4, .expert_count = "num_local_experts", .has_expert_sizes = false},
    {.model_type = "ministral3", .add = add_ministral3},
    {.model_type = "minimax_m2", .told = {}, .expert_count = "num_local_experts", .has_expert_sizes = false},
    {.model_type = "mixtral", .expert_count = "num_local_experts", .has_expert_sizes = false},
    {.model_type = "olmo3", .has_window = true},
    {.model_type = "phi3", .has_window = true},
    {.model_type = "phimoe",
     .told = kPhimoeBiases,
     .has_window = true,
     .expert_count = "num_local_experts",
     .has_expert_sizes = false},
    {.model_type = "qwen2", .told = {}},
    {.model_type = "qwen3_next", .told = {}, .add = add_delta_moe},
    {.model_type = "qwen3_5_text", .told = {}, .add = add_delta, .has_sections = true},
    {.model_type = "qwen3_5_moe_text", .told = {}, .add = add_delta_moe, .has_sections = true},
    {.model_type = "seed_oss", .told = kSeedBiases},
});

}  // namespace

const Particulars& particulars_of(std::string_view model_type) noexcept {
  static constexpr Particulars kUsual{.model_type = {}};
  const auto row = std::ranges::find(kRows, model_type, &Particulars::model_type);
  return row == kRows.end() ? kUsual : *row;
}

}  // namespace halfbyte::files
