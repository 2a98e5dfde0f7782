#include "convert/quantization_config.h"

#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::QuantizeOptions;

namespace {

ordered_json config_for(const std::vector<TestTensor>& tensors, const ordered_json& config,
                        const QuantizeOptions& options) {
  const Scratch scratch;
  write_checkpoint(scratch / "m", tensors, config);
  const auto source = files::open_checkpoint(scratch / "m");
  return convert::quantization_config(source, convert::plan(source, options));
}

}  // namespace

TEST_CASE("quantization_config: one group targets every Linear", "[convert]") {
  const auto config = config_for(llama_tensors(), llama_config(), {.group_size = 32});
  REQUIRE(config["config_groups"].size() == 1);
  const auto& group = config["config_groups"]["group_0"];
  CHECK(group["targets"] == ordered_json{"Linear"});
  CHECK(group["weights"]["strategy"] == "group");
  CHECK(group["weights"]["group_size"] == 32);
  CHECK(config["ignore"] == ordered_json{"lm_head"});
}

TEST_CASE("quantization_config: a tied head is ignored, stored or not", "[convert]") {
  CHECK(config_for(llama_tensors(false), llama_config(true), {})["ignore"] == ordered_json{"lm_head"});
  CHECK(config_for(llama_tensors(true), llama_config(true), {})["ignore"] == ordered_json{"lm_head"});
}

TEST_CASE("quantization_config: several groups name their modules, kept Linears are ignored", "[convert]") {
  const auto config = config_for(
      llama_tensors(), llama_config(),
      {.group_size = 32, .keep = {"q_proj"}, .scheme_for = {{"*down_proj*", "sym_int8"}, {"lm_head", "sym_int8"}}});
  REQUIRE(config["config_groups"].size() == 2);
  const std::string layer = "model.layers.0.";
  CHECK(config["config_groups"]["group_0"]["weights"]["num_bits"] == 4);
  CHECK(config["config_groups"]["group_0"]["targets"] ==
        ordered_json{layer + "self_attn.k_proj", layer + "self_attn.v_proj", layer + "self_attn.o_proj",
                     layer + "mlp.gate_proj", layer + "mlp.up_proj"});
  CHECK(config["config_groups"]["group_1"]["weights"]["num_bits"] == 8);
  CHECK(config["config_groups"]["group_1"]["targets"] == ordered_json{layer + "mlp.down_proj", "lm_head"});
  CHECK(config["ignore"] == ordered_json::array({layer + "self_attn.q_proj"}));
}

TEST_CASE("quantization_config: one scale a row is a channel", "[convert]") {
  const auto config = config_for(llama_tensors(), llama_config(), {.group_size = 0});
  REQUIRE(config["config_groups"].size() == 1);
  CHECK(config["config_groups"]["group_0"]["weights"]["strategy"] == "channel");
  CHECK(config["config_groups"]["group_0"]["weights"]["group_size"].is_null());
}

TEST_CASE("quantization_config: rows that are one group stay in the group of the others", "[convert]") {
  // hidden 32 and 64: with groups of 32 the first are rows of one group.
  CHECK(config_for(llama_tensors(), llama_config(), {.group_size = 32})["config_groups"].size() == 1);
}

TEST_CASE("quantization_config: nothing quantised, nothing said", "[convert]") {
  CHECK(config_for(llama_tensors(), llama_config(), {.keep = {"*"}}).is_null());
}

TEST_CASE("quantization_config: zero points are a group of their own", "[convert]") {
  const auto config =
      config_for(llama_tensors(), llama_config(),
                 {.scheme = "asym_int4", .group_size = 32, .scheme_for = {{"*down_proj*", "sym_int4"}}});
  REQUIRE(config["config_groups"].size() == 2);
  CHECK(config["config_groups"]["group_0"]["weights"]["symmetric"] == true);
  CHECK(config["config_groups"]["group_0"]["targets"] == ordered_json{"model.layers.0.mlp.down_proj"});
  CHECK(config["config_groups"]["group_1"]["weights"]["symmetric"] == false);
  CHECK(config["config_groups"]["group_1"]["weights"]["num_bits"] == 4);
}

TEST_CASE("quantization_config: bitsandbytes", "[convert]") {
  const auto config = config_for(llama_tensors(), llama_config(),
                                 {.scheme = "nf4", .group_size = 32, .nested_scales = true, .keep = {"q_proj"}});
  CHECK(config["quant_method"] == "bitsandbytes");
  CHECK(config["load_in_4bit"] == true);
  CHECK(config["bnb_4bit_quant_type"] == "nf4");
  CHECK(config["bnb_4bit_use_double_quant"] == true);
  CHECK(config["llm_int8_skip_modules"] == ordered_json{"lm_head", "model.layers.0.self_attn.q_proj"});
}

TEST_CASE("quantization_config: what only halfbyte reads says so", "[convert]") {
  const auto config =
      config_for(llama_tensors(), llama_config(), {.scheme = "fp4_e2m1", .group_size = 32, .halfbyte_only = true});
  CHECK(config == ordered_json{{"quant_method", "halfbyte"}});
}
