// Families out to GGUF and back in: the same tensors, and a configuration that parses to the same model. What llama.cpp
// would compute otherwise is refused.
#include "convert/gguf/export.h"

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "tests/convert/gguf/same.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

using Json = nlohmann::json;

constexpr const char* kFamilies[] = {
    "llama2",     "llama31-rope", "llama-yarn",  "mistral-sw",       "qwen2",       "qwen3",      "phi3",
    "gemma2",     "glm4-9b",      "chatglm2",    "mixtral",          "olmo2",       "olmo3",      "seed-oss",
    "ernie4.5",   "granite",      "smollm3",     "hunyuan-dense",    "cohere2",     "minimax-m2", "glm4-moe",
    "ministral3", "gemma3",       "granitemoe",  "gpt-oss",          "lfm2",        "qwen3-next", "qwen3.5",
    "gemma4",     "gemma4-moe",   "qwen3.5-moe", "deepseek-v2-lite", "deepseek-v3", "gemma4-ple"};

// Matrices of 48 and of 16 columns, which are no whole blocks.
std::vector<std::string> kept_of(const std::string& family) {
  if (family == "deepseek-v3") return {"*q_b_proj*"};
  return family == "gemma4-ple" ? std::vector<std::string>{"*per_layer_projection.weight"} : std::vector<std::string>();
}

constexpr float kNormBound = 6e-8F;  // half of float32's step above 1

// A copy of a family's fixture, its config.json changed.
fs::path changed(const Scratch& scratch, const std::string& family, const Json& change) {
  const fs::path out = scratch / family;
  fs::remove_all(out);
  fs::copy(test_data() / "families" / family, out);
  Json config = Json::parse(read_text(out / "config.json"));
  config.merge_patch(change);
  for (const auto& [key, value] : change.items()) {
    if (value.is_null()) config[key] = nullptr;  // which a patch takes away
  }
  write_text(out / "config.json", config.dump());
  return out;
}

// Without what GGUF has no place for: how tensors are named, ids where there is no tokenizer (the fixtures have none),
// and windows that llama.cpp's architecture ignores.
models::ModelConfig comparable(models::ModelConfig model, bool has_window) {
  model.naming = nullptr;
  model.layers_ahead = 0;  // GGUF leaves them out
  model.bos_token_id.reset();
  model.eos_token_ids.clear();
  for (models::RopeConfig& rope : model.ropes) {
    if (rope.type == models::RopeType::kDefault) rope.original_max_position_embeddings = 0;
  }
  if (has_window) return model;
  model.model_type = "";
  model.sliding_window = 0;
  for (models::LayerConfig& layer : model.layers) layer.window = 0;
  return model;
}

void check_round_trip(const Scratch& scratch, const fs::path& from, bool has_window = true) {
  const fs::path to = scratch / "m.gguf", again = scratch / "again.gguf";
  convert::export_gguf(from, to, {.overwrite = true});
  check_same(from, to, kNormBound);
  const auto wanted = comparable(files::open_checkpoint(from).model_config(), has_window);
  const auto found = comparable(files::open_checkpoint(to).model_config(), has_window);
  CHECK(found.model_type == wanted.model_type);
  CHECK(found.ropes == wanted.ropes);
  CHECK(found.layers == wanted.layers);
  CHECK(found.moe == wanted.moe);
  CHECK(found.query_scale == wanted.query_scale);
  CHECK(found.norm_eps == wanted.norm_eps);
  CHECK(found == wanted);
  const bool is_packed_latent = files::open_checkpoint(from).is_quantized() && wanted.latent.rank > 0;  // back dense
  if (!has_window || is_packed_latent) return;
  convert::export_gguf(to, again, {.overwrite = true});
  const bool is_same = read_text(to) == read_text(again);
  CHECK(is_same);
}

std::vector<float> floats(std::size_t count, float from) {
  std::vector<float> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(from + 0.25F * static_cast<float>(i));
  return out;
}

}  // namespace

TEST_CASE("export to GGUF: every family comes back as it went", "[export][gguf]") {
  const Scratch scratch;
  for (const std::string family : kFamilies) {
    INFO(family);
    check_round_trip(scratch, test_data() / "families" / family, family != "mistral-sw");
  }
}

TEST_CASE("export to GGUF: packed families come back as they went", "[export][gguf]") {
  const Scratch scratch;
  for (const std::string family : kFamilies) {
    INFO(family);
    convert::quantize(
        test_data() / "families" / family, scratch / "q",
        {.scheme = "sym_int4", .group_size = 32, .halfbyte_only = true, .keep = kept_of(family), .overwrite = true});
    check_round_trip(scratch, scratch / "q", family != "mistral-sw");
  }
}

TEST_CASE("export to GGUF: settings of the families that only some of their models have", "[export][gguf]") {
  struct Case {
    const char* family;
    Json change;
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 1e6}};
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 20000.0}};
  const Json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"rope_theta", 500000.0},
                     {"attention_factor", 1.5},
                     {"original_max_position_embeddings", 128}};
  const Json latent_yarn = {{"rope_type", "yarn"},   {"factor", 4.0},
                            {"mscale", 0.75},        {"mscale_all_dim", 0.75},
                            {"rope_theta", 10000.0}, {"original_max_position_embeddings", 128}};
  const Json llama3 = {{"rope_type", "llama3"},   {"factor", 8.0},          {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0}, {"rope_theta", 500000.0}, {"original_max_position_embeddings", 64}};
  const Json longrope = {{"rope_type", "longrope"},      {"rope_theta", 10000.0},
                         {"attention_factor", 1.25},     {"short_factor", floats(16, 1)},
                         {"long_factor", floats(16, 2)}, {"original_max_position_embeddings", 128}};
  const Case cases[] = {
      {"exaone4", {{"sliding_window", nullptr}, {"layer_types", nullptr}}},
      {"exaone4", {{"sliding_window", nullptr}, {"layer_types", nullptr}, {"rope_parameters", llama3}}},
      {"gemma3", {{"rope_parameters", {{"full_attention", linear}, {"sliding_attention", plain}}}}},
      {"gemma3", {{"final_logit_softcapping", 20.0}}},
      {"gemma3", {{"layer_types", std::vector<std::string>(6, "sliding_attention")}}},
      {"olmo3", {{"rope_parameters", {{"full_attention", yarn}, {"sliding_attention", {{"rope_theta", 500000.0}}}}}}},
      {"olmo3", {{"sliding_window", 7}, {"layer_types", std::vector<std::string>(4, "sliding_attention")}}},
      {"cohere2", {{"logit_scale", 0.25}, {"layer_norm_eps", 1e-6}}},
      {"granite", {{"attention_multiplier", 0.3}, {"logits_scaling", 13.0}, {"residual_multiplier", 1.0}}},
      {"granite", {{"rope_parameters", llama3}}},
      {"granite", {{"rope_parameters", longrope}}},
      {"hunyuan-dense",
       {{"rope_parameters", {{"rope_type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}, {"rope_theta", 1e4}}}}},
      {"seed-oss", {{"rope_parameters", linear}}},
      {"minimax-m2", {{"rotary_dim", 16}, {"num_experts_per_tok", 3}}},
      {"glm4-moe", {{"routed_scaling_factor", 2.5}, {"norm_topk_prob", false}, {"num_experts_per_tok", 4}}},
      {"glm4-moe", {{"n_group", 4}, {"topk_group", 2}}},
      {"ministral3", {{"rope_parameters", {{"llama_4_scaling_beta", 0.0}}}}},
      {"llama4", {{"attention_chunk_size", 8192}}},
      {"llama4", {{"attention_chunk_size", 8192}, {"rope_parameters", llama3}}},
      {"granitemoe", {{"attention_multiplier", 0.3}, {"rope_parameters", llama3}}},
      {"gpt-oss", {{"sliding_window", 5}, {"layer_types", {"full_attention", "sliding_attention"}}}},
      {"gpt-oss", {{"rope_parameters", plain}}},
      {"deepseek-v2-lite", {{"rope_parameters", latent_yarn}, {"routed_scaling_factor", 2.0}}},
      {"deepseek-v3", {{"n_group", 2}, {"topk_group", 1}, {"norm_topk_prob", false}}},
      {"qwen3-next", {{"rope_parameters", {{"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}}}}},
      {"qwen3.5", {{"rope_parameters", {{"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}}}}},
      {"gemma4", {{"sliding_window", 5}, {"final_logit_softcapping", 20.0}}},
      {"ministral3", {{"rope_parameters", {{"beta_fast", 4.0}, {"mscale", 0.0}, {"factor", 8.0}}}}},
  };
  const Scratch scratch;
  for (const auto& [family, change] : cases) {
    INFO(family << " " << change.dump());
    const fs::path from = changed(scratch, family, change);
    if (std::string(family) == "hunyuan-dense") {  // the base is on record as it was stretched
      convert::export_gguf(from, scratch / "m.gguf", {.overwrite = true});
      const auto wanted = files::open_checkpoint(from).model_config().ropes.at(0).theta;
      const auto found = files::open_checkpoint(scratch / "m.gguf").model_config().ropes.at(0).theta;
      CHECK(std::abs(found / wanted - 1) < 1e-6);
    } else {
      check_round_trip(scratch, from);
    }
  }
}

TEST_CASE("export to GGUF: what llama.cpp's architecture cannot say is refused by name", "[export][gguf]") {
  struct Case {
    const char* family;
    Json change;
    const char* message;
  };
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 16.0}};
  const Json longrope = {{"rope_type", "longrope"}, {"short_factor", floats(16, 1)}, {"long_factor", floats(16, 2)}};
  const Json truncated = {{"rope_type", "yarn"}, {"factor", 4.0}, {"truncate", false}};
  const Json bases = {{"full_attention", {{"rope_theta", 500000.0}}}, {"sliding_attention", {{"rope_theta", 10000.0}}}};
  const Json scaled = {{"full_attention", {{"rope_theta", 1e6}}},
                       {"sliding_attention", {{"rope_theta", 1e4}, {"rope_type", "linear"}, {"factor", 2.0}}}};
  const Case cases[] = {
      {"phimoe", Json::object(), "LayerNorm"},
      {"exaone4", Json::object(), "other than 64 layers"},
      {"olmo2", {{"rope_parameters", longrope}}, "longrope"},
      {"olmo2", {{"rope_parameters", yarn}}, "beta_fast"},
      {"olmo3", {{"rope_parameters", bases}}, "another rope base"},
      {"llama2", {{"rope_parameters", truncated}}, "truncate"},
      {"gemma3", {{"query_pre_attn_scalar", 100}}, "query_pre_attn_scalar"},
      {"gemma3", {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping"},
      {"gemma3", {{"rope_parameters", scaled}}, "layers that slide"},
      {"gemma2", {{"query_pre_attn_scalar", 100}}, "query_pre_attn_scalar"},
      {"gemma2", {{"layer_types", {"full_attention", "sliding_attention"}}}, "every second"},
      {"smollm3", {{"no_rope_layers", {1, 0, 1, 0}}}, "every fourth"},
      {"seed-oss", {{"hidden_act", "gelu"}}, "activation"},
      {"glm4-moe", {{"n_group", 2}, {"topk_group", 2}}, "all chosen"},
      {"ministral3", {{"rope_parameters", {{"rope_type", "linear"}}}}, "without YaRN"},
      {"llama4", Json::object(), "chunks other than of 8192"},
      {"llama4", {{"attention_chunk_size", 8192}, {"use_qk_norm", false}}, "128 experts"},
      {"llama4", {{"attention_chunk_size", 8192}, {"attn_scale", 0.2}}, "queries that grow"},
      {"llama4", {{"attention_chunk_size", 8192}, {"no_rope_layers", {1, 1, 1, 1}}}, "every fourth"},
      {"gpt-oss", {{"swiglu_limit", 6.0}}, "activation"},
      {"gpt-oss", {{"layer_types", {"full_attention", "full_attention"}}}, "no layer that has it"},
      {"deepseek-v2-lite", {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 1.0}}}}, "mscale"},
      {"deepseek-v2-lite",
       {{"topk_method", "group_limited_greedy"}, {"n_group", 2}, {"topk_group", 1}},
       "their best one"},
      {"deepseek-v3", {{"rope_interleave", false}}, "rope_interleave"},
      {"deepseek-v3", {{"rms_norm_eps", 1e-5}}, "epsilon"},
      {"gemma2", {{"final_logit_softcapping", nullptr}}, "no soft caps"},
      {"qwen2", {{"rope_parameters", longrope}}, "llama3 or longrope"},
      {"qwen3.5", {{"rms_norm_eps", 1e-5}}, "rms_norm_eps"},
      {"qwen3-next", {{"norm_topk_prob", false}}, "not normalised"},
      {"gemma4", {{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}, "another rope"},
  };
  const Scratch scratch;
  for (const auto& [family, change, message] : cases) {
    INFO(family << " " << change.dump());
    const fs::path from = changed(scratch, family, change);
    check_error(ErrorCode::kUnsupported, {"llama.cpp's", message},
                [&] { convert::export_gguf(from, scratch / "m.gguf"); });
    CHECK_FALSE(fs::exists(scratch / "m.gguf"));
  }
}
