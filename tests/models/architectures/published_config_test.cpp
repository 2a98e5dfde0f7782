// config.json in the spellings of published checkpoints, which transformers writes otherwise since.
#include "tests/catch.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "models/architectures/architecture.h"
#include "models/architectures/tensor_table.h"
#include "tests/models/parse_config.h"

namespace halfbyte::models {
namespace {

TEST_CASE("DeepSeek V3: no head_dim, YaRN whose mscale counts for the scores", "[architectures][published]") {
  nlohmann::json config = full_config_of("deepseek_v3");
  config.update({{"qk_rope_head_dim", 64}, {"qk_nope_head_dim", 128}, {"kv_lora_rank", 512}, {"v_head_dim", 128}});
  config.erase("num_experts");
  config.update({{"n_routed_experts", 8}, {"n_group", 4}, {"topk_group", 2}, {"num_nextn_predict_layers", 1}});
  config["rope_scaling"] = {{"type", "yarn"},       {"factor", 40},   {"original_max_position_embeddings", 4096},
                            {"beta_fast", 32},      {"beta_slow", 1}, {"mscale", 1.0},
                            {"mscale_all_dim", 1.0}};
  config.erase("head_dim");
  const ModelConfig model = parse(config);
  const double grown = 0.1 * std::log(40.0) + 1.0;
  CHECK(model.query_scale == Approx(grown * grown / std::sqrt(192.0)));
  CHECK(model.ropes.front().rotary_dim == 64);
  CHECK(model.ropes.front().attention_factor == Approx(1.0));  // mscale and mscale_all_dim cancel
  CHECK(is_not_run(model, "model.layers." + std::to_string(model.num_hidden_layers) + ".eh_proj.weight"));
  CHECK_FALSE(is_not_run(model, "model.layers." + std::to_string(model.num_hidden_layers + 1) + ".eh_proj.weight"));
}

TEST_CASE("DeepSeek V3 says its groups by default", "[architectures][published]") {
  nlohmann::json config = full_config_of("deepseek_v3");
  config["num_experts"] = 64;
  CHECK(parse(config).moe.groups == 8);
  CHECK(parse(config).moe.chosen_groups == 4);
}

TEST_CASE("Llama 4 Scout: equal factors of llama3, a number that switches the temperature on, no_rope_layers empty",
          "[architectures][published]") {
  nlohmann::json part = full_config_of("llama4_text");
  part["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 16.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 1.0},
                          {"original_max_position_embeddings", 8192}};
  part["attn_temperature_tuning"] = 4;
  part["no_rope_layers"] = nlohmann::json::array();
  const nlohmann::json config = {{"model_type", "llama4"}, {"text_config", part}};
  const ModelConfig model = parse(config);
  CHECK(model.is_text_part);
  CHECK(model.ropes.front().type == RopeType::kLlama3);
  REQUIRE(model.layers.size() == 4);
  CHECK(model.layers[2].rope == 0);
  CHECK(model.layers[2].is_chunked);
  CHECK(model.layers[3].rope == kNoRope);
  CHECK(model.layers[3].has_growth);
  part["attn_temperature_tuning"] = 0;
  CHECK_FALSE(parse({{"model_type", "llama4"}, {"text_config", part}}).layers[3].has_growth);
}

TEST_CASE("LFM2 of the first release: block_ff_dim alone, and which layers attend", "[architectures][published]") {
  nlohmann::json config = full_config_of("lfm2");
  config.erase("intermediate_size");
  config.update({{"block_ff_dim", 6656}, {"block_multiple_of", 256}, {"full_attn_idxs", {1, 3}}});
  const ModelConfig model = parse(config);
  CHECK(model.intermediate_size == 4608);
  CHECK(model.layers[0].mixer == MixerKind::kConvolution);
  CHECK(model.layers[1].mixer == MixerKind::kAttention);
  config["full_attn_idxs"] = nlohmann::json::array();
  CHECK(parse(config).layers[1].mixer == MixerKind::kConvolution);
}

TEST_CASE("gpt-oss without a word on its rope has its own", "[architectures][published]") {
  nlohmann::json config = full_config_of("gpt_oss");
  config.erase("rope_scaling");
  const RopeConfig rope = parse(config).ropes.front();
  CHECK(rope.type == RopeType::kYarn);
  CHECK(rope.factor == 32.0);
  CHECK(rope.attention_factor == Approx(0.1 * std::log(32.0) + 1.0));
  CHECK_FALSE(rope.is_range_truncated);
}

TEST_CASE("Gemma 4: sizes of layers that see everything, and what shared layers are stored with",
          "[architectures][published]") {
  nlohmann::json config = full_config_of("gemma4_text");
  config.update({{"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 16},
                 {"global_head_dim", 32},
                 {"num_global_key_value_heads", 1},
                 {"attention_k_eq_v", true},
                 {"hidden_size_per_layer_input", 0},
                 {"num_kv_shared_layers", 1},
                 {"layer_types", {"sliding_attention", "sliding_attention", "full_attention", "full_attention"}}});
  const ModelConfig model = parse(config);
  CHECK(model.activation == Activation::kGeluTanh);
  CHECK(model.ropes.front().type == RopeType::kProportional);
  CHECK(model.ropes.front().rotary_dim == 32);
  CHECK(model.ropes.front().turning_dim == 8);
  CHECK(model.head_dim_of(model.layers[2]) == 32);
  CHECK(model.key_value_heads_of(model.layers[2]) == 1);
  CHECK(model.layers[3].keys_of == 2);
  CHECK(is_not_run(model, "model.layers.3.self_attn.k_proj.weight"));
  CHECK_FALSE(is_not_run(model, "model.layers.2.self_attn.k_proj.weight"));
  config["num_global_key_value_heads"] = 3;
  CHECK_THAT(error_of(config), Catch::Contains("layer 2 has 3 key heads of 32"));
  config["num_global_key_value_heads"] = 1;
  config["hidden_size_per_layer_input"] = 8;
  config["vocab_size_per_layer_input"] = 10;
  CHECK_THAT(error_of(config), Catch::Contains("\"vocab_size_per_layer_input\" is less than \"vocab_size\""));
}

TEST_CASE("Qwen3.5: its text part, below either prefix, with what predicts further tokens beside it",
          "[architectures][published]") {
  nlohmann::json part = full_config_of("qwen3_5_text");
  part.erase("tie_word_embeddings");
  part.update({{"full_attention_interval", 2},
               {"rope_parameters", {{"mrope_section", {11, 11, 10}}, {"partial_rotary_factor", 0.5}}}});
  const nlohmann::json config = {
      {"model_type", "qwen3_5"}, {"text_config", part}, {"tie_word_embeddings", true}, {"eos_token_id", {5, 6}}};
  const Architecture* row = find_architecture(config);
  REQUIRE(row);
  CHECK(row->model_type == "qwen3_5_text");
  ModelConfig model = row->parse(config);
  CHECK(model.tie_word_embeddings);
  CHECK(model.eos_token_ids == std::vector<std::int64_t>{5, 6});
  CHECK(model.layers[0].mixer == MixerKind::kDelta);
  CHECK(model.layers[1].mixer == MixerKind::kAttention);
  CHECK(model.ropes.front().rotary_dim == model.head_dim / 2);
  row->choose_naming(model, [](const std::string& name) { return name.starts_with("model.language_model."); });
  CHECK(model.naming->layers == "model.language_model.layers");
  CHECK(is_not_run(model, "model.visual.blocks.0.attn.qkv.weight"));
  CHECK(is_not_run(model, "mtp.layers.0.mlp.gate_proj.weight"));
  CHECK_FALSE(is_not_run(model, "model.language_model.layers.0.made_up.weight"));
}

}  // namespace
}  // namespace halfbyte::models
