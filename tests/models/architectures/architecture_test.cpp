// config.json and tensor names of the families, without LibTorch.
#include <string>

#include <halfbyte/error.h>

#include "models/architectures/architecture.h"
#include "tests/catch.h"
#include "tests/models/parse_config.h"

namespace halfbyte::models {
namespace {

nlohmann::json small_llama() {
  return nlohmann::json::parse(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 5000.0})");
}

TEST_CASE("the old and the new spelling of rotary parameters mean the same", "[architectures]") {
  const nlohmann::json scaling = {{"factor", 8.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 64},
                                  {"rope_type", "llama3"}};
  nlohmann::json old_spelling = small_llama();
  old_spelling["rope_scaling"] = scaling;
  nlohmann::json new_spelling = small_llama();
  new_spelling.erase("rope_theta");
  new_spelling["rope_parameters"] = scaling;
  new_spelling["rope_parameters"]["rope_theta"] = 5000.0;
  for (const auto& config : {parse(old_spelling), parse(new_spelling)}) {
    CHECK(config.ropes.at(0).type == RopeType::kLlama3);
    CHECK(config.ropes.at(0).theta == 5000.0);
    CHECK(config.ropes.at(0).factor == 8.0);
    CHECK(config.ropes.at(0).original_max_position_embeddings == 64);
    CHECK(config.ropes.at(0).rotary_dim == 16);
  }
  nlohmann::json oldest = small_llama();
  oldest["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  CHECK(parse(oldest).ropes.at(0).type == RopeType::kLinear);
}

TEST_CASE("absent fields of config.json take the family's defaults", "[architectures]") {
  nlohmann::json config = small_llama();
  config.erase("num_key_value_heads");
  config["head_dim"] = nullptr;
  const ModelConfig model = parse(config);
  CHECK(model.num_key_value_heads == 4);
  CHECK(model.head_dim == 16);
  CHECK_FALSE(model.tie_word_embeddings);
  CHECK(model.eos_token_ids.empty());
}

TEST_CASE("a broken config.json is refused with the field's name", "[architectures]") {
  struct Case {
    const char* field;
    nlohmann::json value;
    const char* says;
  };
  const Case cases[] = {
      {"hidden_size", -1, "\"hidden_size\" is -1; expected an integer"},
      {"hidden_size", "64", "\"hidden_size\" is \"64\""},
      {"hidden_size", nullptr, "\"hidden_size\" is missing"},
      {"num_hidden_layers", 1000000000, "\"num_hidden_layers\""},
      {"num_hidden_layers", 18446744073709551615ULL, "\"num_hidden_layers\""},
      {"num_key_value_heads", 3, "not a multiple"},
      {"head_dim", 15, "an even number"},
      {"hidden_act", "relu6", "\"relu6\""},
      {"rope_theta", 0, "\"rope_theta\""},
      {"rope_scaling", {{"type", "mrope"}, {"factor", 2}}, "\"mrope\" is not supported"},
      {"rope_scaling", {{"type", "linear"}}, "\"factor\" is missing"},
      {"tie_word_embeddings", 1, "true or false"},
      {"eos_token_id", {1, -2}, "token ids"},
  };
  for (const Case& test : cases) {
    nlohmann::json config = small_llama();
    config[test.field] = test.value;
    INFO(test.field << " = " << test.value.dump());
    CHECK_THAT(error_of(config), Catch::Contains(test.says));
  }
}

TEST_CASE("tensor names have roles, known family or not", "[architectures]") {
  const Architecture* llama = find_architecture(small_llama());
  REQUIRE(llama != nullptr);
  const std::int64_t matrix[] = {4, 4};
  const std::int64_t vector[] = {4};
  CHECK(role_of(llama, "model.layers.10.self_attn.q_proj.weight", matrix) == Role::kLinear);
  CHECK(role_of(llama, "model.layers.x.self_attn.q_proj.weight", matrix) == Role::kUnknown);
  CHECK(role_of(llama, "lm_head.weight", matrix) == Role::kHead);
  CHECK(role_of(llama, "model.layers.0.self_attn.rotary_emb.inv_freq", vector) == Role::kBuffer);
  CHECK(role_of(nullptr, "encoder.block.0.dense.weight", matrix) == Role::kLinear);
  CHECK(role_of(nullptr, "encoder.block.0.layer_norm.weight", vector) == Role::kNorm);
  CHECK(role_of(nullptr, "wte.weight", matrix) == Role::kEmbedding);
  CHECK(role_of(nullptr, "some.bias", vector) == Role::kBias);
  CHECK(find_architecture({{"model_type", "nothing-like-it"}}) == nullptr);
}

TEST_CASE("a family lists every tensor it needs", "[architectures]") {
  nlohmann::json config = small_llama();
  config["attention_bias"] = true;
  config["tie_word_embeddings"] = true;
  const Architecture* llama = find_architecture(config);
  const ModelConfig model = llama->parse(config);
  const auto expected = llama->expected(model);
  CHECK(expected.size() == 1 + 2 * (9 + 4) + 2);
  for (const ExpectedTensor& tensor : expected) CHECK(role_of(llama, tensor.name, tensor.shape) == tensor.role);
  REQUIRE(llama->ties(model).size() == 1);
  CHECK(llama->ties(model)[0].first == "lm_head.weight");
  REQUIRE(llama->derived(model).size() == 1);
  CHECK(llama->derived(model)[0].inputs->at("rope_theta") == 5000.0);
}

}  // namespace
}  // namespace halfbyte::models
