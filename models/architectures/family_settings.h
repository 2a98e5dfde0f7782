// Settings of config.json that several families share.
#pragma once

#include <functional>

#include "models/architectures/config_reader.h"
#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Of all layers. 0: none slides.
void set_window(ModelConfig& model, std::int64_t window);
// "sliding_window", of all layers.
void slide_all(const ConfigReader& config, ModelConfig& model);
// "layer_types", one a layer; without, what `otherwise` says. Errors: kCorrupt, kUnsupported for a type that is not
// known.
void slide_some(const ConfigReader& config, ModelConfig& model,
                const std::function<bool(std::size_t layer)>& otherwise);
// "layer_types", one a layer: attention that sees everything, or `word` for the other kind of mixer; without, what
// `otherwise` says. Errors: as slide_some().
void mix_some(const ConfigReader& config, ModelConfig& model, MixerKind other, const char* word,
              const std::function<bool(std::size_t layer)>& otherwise);
// Every so many layers one sees everything, by "sliding_window_pattern" or `usual`, where "layer_types" does not say.
void slide_but_every(const ConfigReader& config, ModelConfig& model, std::int64_t usual);
// "no_rope_layers" has a 1 where a layer turns; without, every "no_rope_layer_interval"th does not.
void choose_no_rope(const ConfigReader& config, ModelConfig& model);
// "layer_types", one a layer; without, those that turn see their own chunk alone. Errors: as slide_some().
void chunk_some(const ConfigReader& config, ModelConfig& model, std::int64_t chunk);
// Those that slide turn by the rope, the others by none.
void turn_what_slides(ModelConfig& model);
// "num_experts", "num_local_experts" or "n_routed_experts", in all layers. Errors: kCorrupt for more than a model can
// have. `chosen`: how many a token takes.
void choose_experts(const ConfigReader& config, ModelConfig& model, const char* chosen = "num_experts_per_tok");
// "n_group" and "topk_group", or those that are usual. Needs the experts. Errors: kCorrupt where experts make no such
// groups.
void choose_groups(const ConfigReader& config, ModelConfig& model, std::int64_t usual = 1, std::int64_t chosen = 1);
// "decoder_sparse_step" and "mlp_only_layers": which layers have an MLP instead. Needs the experts.
void choose_dense(const ConfigReader& config, ModelConfig& model);
// Of the first layers, instead of experts an MLP.
void begin_dense(std::int64_t layers, ModelConfig& model);
// "attention_bias" of all four projections.
void set_attention_bias(const ConfigReader& config, ModelConfig& model);
// That, and "mlp_bias" of the MLP's.
void set_biases(const ConfigReader& config, ModelConfig& model);
// A number that null switches off. 0: off.
double switchable(const ConfigReader& config, const char* key, double fallback);

}  // namespace halfbyte::models
