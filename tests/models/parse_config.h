// config.json of a test: small ones of every family, parsed by their row, or refused.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/architectures/architecture.h"

namespace halfbyte::models {

inline nlohmann::json config_of(const std::string& model_type) {
  return {{"model_type", model_type}, {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 16},           {"vocab_size", 100},        {"max_position_embeddings", 64}};
}

// As config_of, with what only some families ask for, under all names that they have for it.
inline nlohmann::json full_config_of(const std::string& model_type) {
  nlohmann::json config = config_of(model_type);
  for (const char* count : {"num_experts", "num_local_experts"}) config[count] = 3;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 32;
  const nlohmann::json chatglm = {{"ffn_hidden_size", 96},    {"num_layers", 4},     {"multi_query_attention", true},
                                  {"kv_channels", 16},        {"seq_length", 64},    {"multi_query_group_num", 2},
                                  {"padded_vocab_size", 100}, {"add_qkv_bias", true}};
  config.update(chatglm);
  return config;
}

inline ModelConfig parse(const nlohmann::json& config) { return find_architecture(config)->parse(config); }

// What the refusal says.
inline std::string error_of(const nlohmann::json& config) {
  try {
    parse(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace halfbyte::models
