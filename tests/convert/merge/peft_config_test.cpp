// Which settings of peft's are read, whose rank and alpha hold, and which kinds of adapters are refused by name.
#include "convert/merge/peft_config.h"

#include "convert/merge/peft_adapter.h"
#include "tests/convert/merge/adapter_files.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::PeftConfig;

namespace {

PeftConfig read(const ordered_json& config) {
  const Scratch scratch;
  write_text(scratch / "adapter_config.json", config.dump());
  return convert::read_peft_config(scratch.path());
}

void check_refused(ErrorCode code, const std::string& part, const ordered_json& config) {
  check_error(code, {"adapter_config.json", part}, [&] { read(config); });
}

ordered_json with(const std::string& key, const ordered_json& value) {
  ordered_json out = peft_config(4, 8);
  out[key] = value;
  return out;
}

}  // namespace

TEST_CASE("peft config: rank and scaling of each module", "[merge]") {
  const PeftConfig plain = read(peft_config(4, 8));
  CHECK(plain.rank_of("any") == 4);
  CHECK(plain.scaling_of("any") == 2.0);
  CHECK_FALSE(plain.is_weight_decomposed);
  CHECK(read(with("use_dora", true)).is_weight_decomposed);
  ordered_json config = with("rank_pattern", {{"layers.1.q_proj", 16}, {"q_proj", 2}, {"^k_proj", 1}});
  config["alpha_pattern"] = {{"v_proj", 5}};
  config["use_rslora"] = true;
  const PeftConfig varied = read(config);
  CHECK(varied.rank_of("model.layers.1.q_proj") == 16);  // the first that names it
  CHECK(varied.rank_of("model.layers.0.q_proj") == 2);
  CHECK(varied.rank_of("model.layers.0.seq_proj") == 4);
  CHECK(varied.rank_of("model.layers.0.k_proj") == 4);  // "^" is from the beginning on
  CHECK(varied.rank_of("k_proj") == 1);
  CHECK(varied.scaling_of("model.layers.1.q_proj") == 2.0);
  CHECK(varied.scaling_of("v_proj") == 2.5);
}

TEST_CASE("peft config: other kinds of adapters are refused by the setting that says so", "[merge]") {
  check_refused(ErrorCode::kUnsupported, "peft_type \"IA3\"", with("peft_type", "IA3"));
  check_refused(ErrorCode::kUnsupported, "bias", with("bias", "all"));
  check_refused(ErrorCode::kUnsupported, "modules_to_save", with("modules_to_save", {"lm_head"}));
  check_refused(ErrorCode::kUnsupported, "fan_in_fan_out", with("fan_in_fan_out", true));
  check_refused(ErrorCode::kUnsupported, "init_lora_weights", with("init_lora_weights", "pissa_niter_4"));
  check_refused(ErrorCode::kUnsupported, "pattern", with("rank_pattern", {{"q_proj|k_proj", 3}}));
  for (const char* nothing : {"bias", "modules_to_save", "lora_bias", "layer_replication"})
    CHECK(read(with(nothing, nullptr)).rank == 4);
  CHECK(read(with("bias", "none")).rank == 4);
  CHECK(read(with("init_lora_weights", "gaussian")).rank == 4);
}

TEST_CASE("peft config: what is no config is refused", "[merge]") {
  check_refused(ErrorCode::kCorrupt, "peft_type", {{"r", 1}});
  check_refused(ErrorCode::kCorrupt, "object", ordered_json::array());
  check_refused(ErrorCode::kCorrupt, "", with("r", "four"));
  check_refused(ErrorCode::kCorrupt, "rank", with("r", 0));
  check_refused(ErrorCode::kCorrupt, "rank", with("rank_pattern", {{"q_proj", 0}}));
  const Scratch scratch;
  check_error(ErrorCode::kNotFound, {"adapter_config.json"}, [&] { convert::read_peft_config(scratch / "none"); });
}

TEST_CASE("peft adapter: what does not fit its settings is damaged", "[merge]") {
  const Scratch scratch;
  const fs::path path = scratch / "a";
  const auto check = [&](ErrorCode code, const std::string& part, const std::vector<TestTensor>& tensors,
                         const ordered_json& config) {
    write_adapter(path, tensors, config);
    check_error(code, {"adapter_model.safetensors", part}, [&] { convert::open_peft_adapter(path); });
  };
  const ordered_json three = peft_config(3, 6);
  std::vector<TestTensor> tensors = adapter_tensors({kQuery});
  check(ErrorCode::kCorrupt, "rank 3", tensors, peft_config(4, 8));
  check(ErrorCode::kCorrupt, "one matrix of two", {tensors[0]}, three);
  check(ErrorCode::kCorrupt, "magnitude", adapter_tensors({{"q", 8, 8, 3, true}}), three);
  ordered_json dora = three;
  dora["use_dora"] = true;
  check(ErrorCode::kCorrupt, "no magnitude", tensors, dora);
  check(ErrorCode::kUnsupported, "no part of a LoRA", {float_tensor("base_model.model.q.lora_E", {3})}, three);
  check(ErrorCode::kCorrupt, "no adapter", {}, three);
  std::vector<TestTensor> others = tensors;
  others[1] = float_tensor(others[1].name, {32, 2});
  check(ErrorCode::kCorrupt, "do not fit each other", others, three);
  write_adapter(path, tensors, three);
  const std::string bytes = read_text(path / "adapter_model.safetensors");
  write_text(path / "adapter_model.safetensors", bytes.substr(0, bytes.size() / 2));
  check_error(ErrorCode::kCorrupt, {"adapter_model.safetensors"}, [&] { convert::open_peft_adapter(path); });
}
