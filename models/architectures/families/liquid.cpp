// LFM2.
#include <algorithm>

#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

// The MLP is two thirds of what config.json says, times a factor, up to the next multiple.
std::int64_t adjusted(const ConfigReader& config, std::int64_t size) {
  if (!config.boolean_or("block_auto_adjust_ff_dim", true)) return size;
  const double factor = config.number_or("block_ffn_dim_multiplier", 1.0, 1e-6, 1e6);
  const std::int64_t multiple = config.integer_or("block_multiple_of", 256, 1, kMaxSize);
  const auto wanted = static_cast<std::int64_t>(factor * static_cast<double>(2 * size / 3));
  const std::int64_t out = (wanted + multiple - 1) / multiple * multiple;
  if (out >= 1 && out <= kMaxSize) return out;
  throw Error(ErrorCode::kCorrupt, "config.json: the MLP's size comes to " + std::to_string(out));
}

// Without "layer_types", "full_attn_idxs" are the layers that attend; without either all do.
void choose_mixers(const ConfigReader& config, ModelConfig& model) {
  const auto attends = config.integers_or_none("full_attn_idxs", 0, kMaxLayers);
  mix_some(config, model, MixerKind::kConvolution, "conv", [&](std::size_t layer) {
    return config.has("full_attn_idxs") &&
           std::ranges::find(attends, static_cast<std::int64_t>(layer)) == attends.end();
  });
}

void configure_lfm2(const ConfigReader& config, ModelConfig& model) {
  model.intermediate_size = adjusted(config, config.integer_or("block_ff_dim", model.intermediate_size, 1, kMaxSize));
  model.tie_word_embeddings = config.boolean_or("tie_embedding", model.tie_word_embeddings);
  model.query_key_norm = QueryKeyNorm::kEachHead;
  model.convolution_length = config.integer_or("conv_L_cache", 3, 1, 64);
  model.convolution_bias = config.boolean_or("conv_bias", false);
  choose_mixers(config, model);
}

constexpr std::array kLfm2Names = {Naming{.final_norm = "model.embedding_norm",
                                          .input_norm = "operator_norm",
                                          .mlp_norm = "ffn_norm",
                                          .mlp = "feed_forward",
                                          .attention_output = "out_proj",
                                          .query_norm = "q_layernorm",
                                          .key_norm = "k_layernorm",
                                          .convolution = "conv",
                                          .gate = "w1",
                                          .up = "w3",
                                          .down = "w2"}};

}  // namespace

extern constinit const Family kLfm2 = {.model_type = "lfm2",
                                       .class_name = "Lfm2ForCausalLM",
                                       .label = "lfm2",
                                       .models = "LFM2",
                                       .particular = "short convolutions in most layers",
                                       .namings = kLfm2Names,
                                       .keys = {.rms_norm_eps = "norm_eps"},
                                       .defaults = {.intermediate_size = 12288,
                                                    .num_key_value_heads = 8,
                                                    .max_position_embeddings = 128000,
                                                    .rms_norm_eps = 1e-5,
                                                    .rope_theta = 1e6,
                                                    .tie_word_embeddings = true},
                                       .configure = configure_lfm2};

}  // namespace halfbyte::models::family_rows
