// What config.json of each family says and leaves out, without LibTorch.
#include <algorithm>
#include <cmath>
#include <string>

#include <halfbyte/error.h>

#include "models/architectures/architecture.h"
#include "tests/catch.h"
#include "tests/models/parse_config.h"

namespace halfbyte::models {
namespace {

std::string sliding(const nlohmann::json& config) {
  const ModelConfig model = parse(config);
  std::string text;
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer)
    text += model.layer(layer).window > 0 ? 's' : '-';
  return text + " " + std::to_string(model.sliding_window);
}

TEST_CASE("every family has a name of its own and parses a small config", "[architectures]") {
  for (const Architecture& row : architectures()) {
    INFO(row.model_type);
    if (row.model_type == "chatglm") continue;  // other keys
    CHECK(find_architecture({{"model_type", row.model_type}}) == &row);
    CHECK(find_architecture({{"architectures", {row.class_name}}}) == &row);
    nlohmann::json config = config_of(std::string(row.model_type));
    config["num_experts"] = 4;
    config["num_experts_per_tok"] = 2;
    config["moe_intermediate_size"] = 32;
    const ModelConfig model = row.parse(config);
    if (model.layers.front().mixer != MixerKind::kLatent) CHECK(model.key_value_size() == 32);
    for (const ExpectedTensor& tensor : row.expected(model)) {
      INFO(tensor.name);
      CHECK(role_of(&row, tensor.name, tensor.shape) == tensor.role);
    }
  }
}

TEST_CASE("which layers slide", "[architectures]") {
  nlohmann::json mistral = config_of("mistral");
  CHECK(sliding(mistral) == "ssss 4096");  // the class's default
  mistral["sliding_window"] = nullptr;
  CHECK(sliding(mistral) == "---- 0");
  mistral["sliding_window"] = 8;
  CHECK(sliding(mistral) == "ssss 8");
  nlohmann::json qwen = config_of("qwen2");
  qwen["sliding_window"] = 8;
  CHECK(sliding(qwen) == "---- 0");
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 3;
  CHECK(sliding(qwen) == "---s 8");
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "full_attention"};
  CHECK(sliding(qwen) == "s--- 8");
  qwen["layer_types"][1] = "chunked_attention";
  CHECK_THAT(error_of(qwen), Catch::Contains("\"chunked_attention\" are not supported"));
  qwen["layer_types"] = {"full_attention"};
  CHECK_THAT(error_of(qwen), Catch::Contains("1 entries for 4 layers"));
  CHECK(sliding(config_of("gemma2")) == "s-s- 4096");
}

TEST_CASE("what Gemma 2 leaves out, and what null switches off", "[architectures]") {
  nlohmann::json config = config_of("gemma2");
  ModelConfig model = parse(config);
  CHECK(model.tie_word_embeddings);
  CHECK(model.activation == Activation::kGeluTanh);
  CHECK(model.embedding_scale == 8.0);
  CHECK(model.query_scale == 1.0 / 16);
  CHECK(model.attention_softcap == 50.0);
  CHECK(model.logit_softcap == 30.0);
  config["attn_logit_softcapping"] = nullptr;
  config["final_logit_softcapping"] = nullptr;
  model = parse(config);
  CHECK(model.attention_softcap == 0.0);
  CHECK(model.logit_softcap == 0.0);
}

TEST_CASE("which layers of Qwen3-MoE have experts", "[architectures]") {
  nlohmann::json config = config_of("qwen3_moe");
  config["num_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 32;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  const ModelConfig model = parse(config);
  std::vector<bool> have_experts;
  for (const LayerConfig& layer : model.layers) have_experts.push_back(layer.has_experts);
  CHECK(have_experts == std::vector<bool>{false, true, false, false});
  CHECK_FALSE(model.moe.is_normalised);
  config["num_experts_per_tok"] = 5;
  CHECK_THAT(error_of(config), Catch::Contains("\"num_experts_per_tok\" is 5"));
}

TEST_CASE("ChatGLM's keys, and the first ChatGLM", "[architectures]") {
  nlohmann::json config = {
      {"model_type", "chatglm"},  {"hidden_size", 64}, {"ffn_hidden_size", 96},         {"num_layers", 2},
      {"num_attention_heads", 4}, {"kv_channels", 16}, {"multi_query_attention", true}, {"multi_query_group_num", 2},
      {"padded_vocab_size", 100}, {"seq_length", 256}, {"add_qkv_bias", true},          {"rope_ratio", 50}};
  ModelConfig model = parse(config);
  CHECK(model.qkv == QkvLayout::kFused);
  CHECK(model.ropes.at(0).rotary_dim == 8);
  CHECK(model.ropes.at(0).theta == 500000.0);
  CHECK((model.qkv_bias && !model.output_bias && !model.mlp_bias));
  CHECK(Architecture::derived(model)[0].name == "transformer.rotary_pos_emb.inv_freq");
  config["multi_query_attention"] = false;
  model = parse(config);
  CHECK(model.qkv == QkvLayout::kFusedPerHead);
  CHECK(model.num_key_value_heads == 4);
  config["rmsnorm"] = false;
  CHECK_THAT(error_of(config), Catch::Contains("\"rmsnorm\" is false"));
  const nlohmann::json first = {{"model_type", "chatglm"},      {"hidden_size", 64}, {"num_attention_heads", 4},
                                {"ffn_hidden_size", 96},        {"num_layers", 2},   {"inner_hidden_size", 96},
                                {"position_encoding_2d", true}, {"vocab_size", 100}};
  CHECK(find_architecture(first) == nullptr);
  CHECK(find_architecture(config) != nullptr);
}

TEST_CASE("rope scalings that depend on the sequence's length", "[architectures]") {
  nlohmann::json dynamic = config_of("llama");
  dynamic["rope_scaling"] = {{"type", "dynamic"}, {"factor", 4.0}};
  CHECK(parse(dynamic).max_position_embeddings == 256);
  CHECK(parse(dynamic).ropes.at(0).fixed_length() == 64);
  nlohmann::json phi = config_of("phi3");
  phi["original_max_position_embeddings"] = 16;
  phi["rope_scaling"] = {
      {"type", "su"}, {"short_factor", {1, 1, 1, 1, 1, 1, 1, 1}}, {"long_factor", {2, 2, 2, 2, 2, 2, 2, 2}}};
  const ModelConfig model = parse(phi);
  CHECK(model.ropes.at(0).type == RopeType::kLongrope);
  CHECK(model.ropes.at(0).fixed_length() == 16);
  CHECK(model.ropes.at(0).attention_factor == Approx(std::sqrt(1.0 + std::log(4.0) / std::log(16.0))));
  phi["rope_scaling"]["long_factor"] = {2, 2};
  CHECK_THAT(error_of(phi), Catch::Contains("\"long_factor\" has 2 numbers; expected 8"));
  phi["rope_scaling"].erase("long_factor");
  CHECK_THAT(error_of(phi), Catch::Contains("\"long_factor\" is missing"));
}

TEST_CASE("the naming is the one that the tensors bear out", "[architectures]") {
  nlohmann::json config = config_of("mixtral");
  config["num_local_experts"] = 2;
  config["num_experts_per_tok"] = 1;
  const Architecture* mixtral = find_architecture(config);
  ModelConfig model = mixtral->parse(config);
  for (const Naming& naming : mixtral->namings) {
    ModelConfig stored = model;
    stored.naming = &naming;
    const auto tensors = Architecture::expected(stored);
    const auto has = [&](const std::string& name) {
      return std::ranges::any_of(tensors, [&](const ExpectedTensor& tensor) { return tensor.name == name; });
    };
    mixtral->choose_naming(model, has);
    CHECK(model.naming == &naming);
  }
}

}  // namespace
}  // namespace halfbyte::models
