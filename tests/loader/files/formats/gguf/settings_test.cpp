// What GGUF files of single families say of them, beyond sizes and rope, and what of it is refused.
#include "loader/files/checkpoint.h"
#include "tests/loader/files/formats/gguf/bytes.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

// What every file says: hidden_size 32, two heads.
GgufBytes metadata(const std::string& architecture, std::uint32_t layers) {
  GgufBytes out;
  out.text("general.architecture", architecture);
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::uint32_t>>{{"embedding_length", 32},
                                                                                     {"block_count", layers},
                                                                                     {"feed_forward_length", 64},
                                                                                     {"context_length", 128},
                                                                                     {"attention.head_count", 2}})
    out.number(architecture + "." + key, value);
  out.real(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
  out.tensors.push_back({"token_embd.weight", {32, 8}, 0, std::string(1024, '\0')});
  return out;
}

files::Checkpoint opened(const Scratch& scratch, const GgufBytes& bytes) {
  write_text(scratch / "m.gguf", bytes.all());
  return files::open_checkpoint(scratch / "m.gguf");
}

GgufBytes glm4_moe(std::uint32_t layers) {
  GgufBytes out = metadata("glm4moe", layers);
  for (const auto& [key, value] : {std::pair("expert_count", 4), std::pair("expert_used_count", 2),
                                   std::pair("expert_feed_forward_length", 16), std::pair("expert_shared_count", 1)})
    out.number(std::string("glm4moe.") + key, static_cast<std::uint32_t>(value));
  return out;
}

std::string sliding(const files::Checkpoint& checkpoint) {
  std::string out;
  for (const models::LayerConfig& layer : checkpoint.model_config().layers) out += layer.window > 0 ? 's' : '-';
  return out;
}

}  // namespace

TEST_CASE("what a file leaves out is what llama.cpp takes, not what transformers does", "[gguf]") {
  const Scratch scratch;
  const auto glm = opened(scratch, glm4_moe(2)).model_config();
  CHECK_FALSE(glm.moe.is_normalised);
  CHECK(glm.layer(0).has_experts);
  GgufBytes granite = metadata("granite", 1);
  granite.real("granite.logit_scale", 8.0F);
  CHECK(opened(scratch, granite).model_config().query_scale == 0.25);
  CHECK(opened(scratch, granite).model_config().logit_scale == 0.125);
  CHECK(opened(scratch, metadata("olmo2", 2)).architecture->model_type == "olmo2");
  CHECK(sliding(opened(scratch, metadata("gemma3", 6))) == "------");
}

TEST_CASE("which layers of a GGUF file slide", "[gguf]") {
  const Scratch scratch;
  GgufBytes olmo = metadata("olmo2", 4);
  olmo.number("olmo2.attention.sliding_window", 16);
  CHECK(opened(scratch, olmo).architecture->model_type == "olmo3");
  CHECK(sliding(opened(scratch, olmo)) == "sss-");
  GgufBytes every = olmo;
  every.number("olmo2.attention.sliding_window_pattern", 2);
  CHECK(sliding(opened(scratch, every)) == "s-s-");
  GgufBytes list = olmo;
  list.list("olmo2.attention.sliding_window_pattern", kGgufBool, 4, std::string("\0\1\1\0", 4));
  CHECK(sliding(opened(scratch, list)) == "-ss-");
  GgufBytes short_list = olmo;
  short_list.list("olmo2.attention.sliding_window_pattern", kGgufBool, 3, std::string("\0\1\1", 3));
  check_error(ErrorCode::kCorrupt, {"3 items for 4 layers"}, [&] { opened(scratch, short_list); });
  CHECK(sliding(opened(scratch, metadata("exaone4", 2))) == "--");
  CHECK(sliding(opened(scratch, metadata("exaone4", 64))).starts_with("sss-sss-"));
}

TEST_CASE("layers that predict several tokens ahead are left out of a GGUF model, with a note", "[gguf]") {
  const Scratch scratch;
  GgufBytes bytes = glm4_moe(3);
  bytes.number("glm4moe.nextn_predict_layers", 1);
  bytes.tensors.push_back({"blk.1.post_attention_norm.weight", {32}, 0, std::string(128, '\0')});
  bytes.tensors.push_back({"blk.1.exp_probs_b.bias", {4}, 0, std::string(16, '\0')});
  bytes.tensors.push_back({"blk.2.attn_norm.weight", {32}, 0, std::string(128, '\0')});
  bytes.tensors.push_back({"blk.2.nextn.enorm.weight", {32}, 0, std::string(128, '\0')});
  const auto checkpoint = opened(scratch, bytes);
  CHECK(checkpoint.model_config().num_hidden_layers == 2);
  CHECK(checkpoint.find("model.layers.1.post_attention_layernorm.weight"));
  CHECK(checkpoint.find("model.layers.1.mlp.gate.e_score_correction_bias"));
  CHECK(checkpoint.tensors.size() == 3);
  CHECK(std::ranges::any_of(checkpoint.notes, [](const std::string& note) { return note.starts_with("2 tensors"); }));
  GgufBytes none = glm4_moe(1);
  none.number("glm4moe.nextn_predict_layers", 2);
  check_error(ErrorCode::kCorrupt, {"nextn_predict_layers"}, [&] { opened(scratch, none); });
}

TEST_CASE("what a family's file must say, and may not say otherwise", "[gguf]") {
  const Scratch scratch;
  check_error(ErrorCode::kCorrupt, {"granite.logit_scale", "missing"},
              [&] { opened(scratch, metadata("granite", 1)); });
  GgufBytes softmax = glm4_moe(2);
  softmax.number("glm4moe.expert_gating_func", 1);
  check_error(ErrorCode::kUnsupported, {"expert_gating_func", "is not 2"}, [&] { opened(scratch, softmax); });
  GgufBytes cohere = metadata("cohere2", 1);
  check_error(ErrorCode::kCorrupt, {"attention.layer_norm_epsilon", "missing"}, [&] { opened(scratch, cohere); });
}
