// Command R7B and Command A.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_cohere2(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.is_norm_centred = true;
  model.is_parallel = true;
  model.ropes.front().is_interleaved = true;
  model.logit_scale = config.number_or("logit_scale", 0.0625, 1e-9, 1e9);
  if (!config.is_given("sliding_window") || config.has("sliding_window"))
    model.sliding_window = config.integer_or("sliding_window", 4096, 1, kMaxSize);
  slide_but_every(config, model, 4);
  turn_what_slides(model);
}

constexpr std::array kCohereNames = {Naming{.mlp_norm = ""}};

}  // namespace

extern constinit const Family kCohere2 = {
    .model_type = "cohere2",
    .class_name = "Cohere2ForCausalLM",
    .label = "cohere2",
    .models = "Command R7B, Command A",
    .particular =
        "LayerNorm without a bias, attention and MLP side by side, scaled logits; layers that see everything turn by "
        "no rope",
    .namings = kCohereNames,
    .keys = {.rms_norm_eps = "layer_norm_eps"},
    .defaults = {.max_position_embeddings = 8192, .rms_norm_eps = 1e-5, .tie_word_embeddings = true},
    .configure = configure_cohere2};

}  // namespace halfbyte::models::family_rows
