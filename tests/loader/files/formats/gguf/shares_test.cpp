// Tensors of which a GGUF file has shares, or more than one, or in another order.
#include <numeric>

#include "loader/files/checkpoint.h"
#include "loader/files/formats/gguf/layout.h"
#include "loader/files/tensor_reader.h"
#include "tests/loader/files/formats/gguf/bytes.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

using Rows = std::vector<std::int64_t>;

constexpr std::uint32_t kF32 = 0;

std::string counting(std::size_t count, float from = 0) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += raw(from + static_cast<float>(i));
  return out;
}

GgufBytes metadata(const std::string& architecture) {
  GgufBytes out;
  const std::string prefix = architecture + ".";
  out.text("general.architecture", architecture);
  out.number(prefix + "embedding_length", 4);
  out.number(prefix + "block_count", 1);
  out.number(prefix + "feed_forward_length", 2);
  out.number(prefix + "context_length", 128);
  out.number(prefix + "attention.head_count", 2);
  out.number(prefix + "expert_count", 2);
  out.number(prefix + "expert_used_count", 1);
  out.number(prefix + "expert_feed_forward_length", 2);
  out.real(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
  out.tensors.push_back({"token_embd.weight", {4, 8}, kF32, counting(32)});
  return out;
}

GgufBytes granite() {
  GgufBytes out = metadata("granitemoe");
  out.real("granitemoe.logit_scale", 8.0F);
  return out;
}

std::vector<float> read(const files::Checkpoint& checkpoint, const std::string& name) {
  const files::TensorRecord* record = checkpoint.manifest.find(name);
  REQUIRE(record);
  files::TensorReader reader(checkpoint, *record);
  std::vector<float> out(static_cast<std::size_t>(reader.size()));
  reader.read(0, out);
  return out;
}

files::Checkpoint opened(const Scratch& scratch, const GgufBytes& bytes) {
  write_text(scratch / "m.gguf", bytes.all());
  return files::open_checkpoint(scratch / "m.gguf");
}

// Numbers from each of `begins` on, `count` of them.
std::vector<float> runs(const std::vector<float>& begins, std::size_t count) {
  std::vector<float> out;
  for (const float begin : begins) {
    for (std::size_t i = 0; i < count; ++i) out.push_back(begin + static_cast<float>(i));
  }
  return out;
}

constexpr const char* kStack = "model.layers.0.block_sparse_moe.input_linear.weight";

}  // namespace

TEST_CASE("GGUF's layouts are those of llama.cpp's converter", "[gguf]") {
  models::ModelConfig model;
  model.head_dim = 4;
  CHECK(files::turned_heads(model).picks == Rows{0, 2, 1, 3});
  model.moe.intermediate_size = 3;
  CHECK(files::gate_rows(model).period == 6);
  CHECK(files::gate_rows(model).picks == Rows{0, 1, 2});
  CHECK(files::up_rows(model).picks == Rows{3, 4, 5});
  model.is_gate_interleaved = true;
  CHECK(files::gate_rows(model).picks == Rows{0, 2, 4});
  CHECK(files::up_values(model).picks == Rows{1, 3, 5});
  CHECK(files::up_values(model).unit == 1);
  model.latent = {.rank = 8, .plain_dim = 2, .turned_dim = 2, .value_dim = 3};
  CHECK(files::latent_keys(model).period == 5);
  CHECK(files::latent_keys(model).picks == Rows{0, 1});
  CHECK(files::latent_keys(model).is_transposed);
  CHECK(files::latent_values(model).picks == Rows{2, 3, 4});
}

TEST_CASE("GGUF's layouts of the delta rule are those of llama.cpp's converter", "[gguf]") {
  models::ModelConfig model;
  model.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 1, .value_dim = 2};
  // Of a key head: a query, a key, two values of 2, two gates of 2.
  CHECK(files::delta_mixed_rows(model).period == 20);
  CHECK(files::delta_mixed_rows(model).picks == Rows{0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15});
  CHECK(files::delta_gate_rows(model).picks == Rows{6, 7, 8, 9, 16, 17, 18, 19});
  CHECK(files::tiled_heads(model).picks == Rows{0, 2, 1, 3});
  CHECK(files::tiled_value_rows(model).picks == Rows{0, 1, 4, 5, 2, 3, 6, 7});
  CHECK(files::tiled_mixed_rows(model).picks == Rows{0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10, 11});
  CHECK(files::tiled_value_columns(model).picks == Rows{0, 2, 1, 3});
  CHECK(files::tiled_value_columns(model).unit == 2);
  model.delta.value_heads = 2;  // each key head has one: nothing moves
  CHECK(files::tiled_mixed_rows(model).is_plain());
}

TEST_CASE("GGUF: gates and what they multiply become one stack", "[gguf]") {
  const Scratch scratch;
  GgufBytes bytes = granite();
  bytes.tensors.push_back({"blk.0.ffn_gate_exps.weight", {4, 2, 2}, kF32, counting(16)});
  bytes.tensors.push_back({"blk.0.ffn_up_exps.weight", {4, 2, 2}, kF32, counting(16, 100)});
  const files::Checkpoint checkpoint = opened(scratch, bytes);
  CHECK(checkpoint.manifest.find(kStack)->shape == Rows{2, 4, 4});
  CHECK(read(checkpoint, kStack) == runs({0, 100, 8, 108}, 8));
}

TEST_CASE("GGUF: gates in another type than what they multiply come to values", "[gguf]") {
  const Scratch scratch;
  GgufBytes bytes = granite();
  std::string halves;
  for (int i = 0; i < 16; ++i) halves += raw<std::uint16_t>(0x3F80);  // bfloat16's 1
  bytes.tensors.push_back({"blk.0.ffn_gate_exps.weight", {4, 2, 2}, 30, halves});
  bytes.tensors.push_back({"blk.0.ffn_up_exps.weight", {4, 2, 2}, kF32, counting(16, 100)});
  std::vector<float> wanted(8, 1.0F);
  for (const float value : runs({100}, 8)) wanted.push_back(value);
  wanted.resize(24, 1.0F);
  for (const float value : runs({108}, 8)) wanted.push_back(value);
  CHECK(read(opened(scratch, bytes), kStack) == wanted);
}

TEST_CASE("GGUF: a stack of gates and what they multiply becomes experts that are apart", "[gguf]") {
  const Scratch scratch;
  GgufBytes bytes = metadata("qwen3moe");
  bytes.tensors.push_back({"blk.0.ffn_gate_up_exps.weight", {4, 4, 2}, kF32, counting(32)});
  const files::Checkpoint checkpoint = opened(scratch, bytes);
  const std::string above = "model.layers.0.mlp.experts.";
  CHECK(read(checkpoint, above + "0.gate_proj.weight") == runs({0}, 8));
  CHECK(read(checkpoint, above + "0.up_proj.weight") == runs({8}, 8));
  CHECK(read(checkpoint, above + "1.gate_proj.weight") == runs({16}, 8));
  CHECK(read(checkpoint, above + "1.up_proj.weight") == runs({24}, 8));
}

TEST_CASE("GGUF: DeepSeek's projection of the latent, in two tensors and in one as it was", "[gguf]") {
  const Scratch scratch;
  GgufBytes bytes = metadata("deepseek2");
  bytes.number("deepseek2.rope.dimension_count", 2);
  bytes.number("deepseek2.attention.kv_lora_rank", 3);
  bytes.number("deepseek2.expert_shared_count", 1);
  GgufBytes old = bytes;
  bytes.number("deepseek2.attention.key_length", 5);
  bytes.number("deepseek2.attention.value_length", 3);
  bytes.number("deepseek2.attention.key_length_mla", 4);
  bytes.number("deepseek2.attention.value_length_mla", 1);
  old.number("deepseek2.attention.key_length", 4);
  old.number("deepseek2.attention.value_length", 1);
  // Two heads: keys of 2 values from a latent of 3 (stored 3 rows of 2), values of 1.
  bytes.tensors.push_back({"blk.0.attn_k_b.weight", {2, 3, 2}, kF32, counting(12)});
  bytes.tensors.push_back({"blk.0.attn_v_b.weight", {3, 1, 2}, kF32, counting(6, 100)});
  old.tensors.push_back({"blk.0.attn_kv_b.weight", {3, 6}, kF32, counting(18)});
  const std::string name = "model.layers.0.self_attn.kv_b_proj.weight";
  const std::vector<float> wanted = {0, 2, 4, 1, 3, 5, 100, 101, 102, 6, 8, 10, 7, 9, 11, 103, 104, 105};
  CHECK(read(opened(scratch, bytes), name) == wanted);
  CHECK(read(opened(scratch, old), name) == runs({0}, 18));
}

TEST_CASE("GGUF: shares that are not all of a tensor are refused by name", "[gguf]") {
  struct Case {
    const char* what;
    std::vector<std::uint64_t> gate, up;  // lengths; empty: it is missing
    const char* message;
  };
  const Case cases[] = {
      {"one is missing", {4, 2, 2}, {}, "with it are missing"},
      {"another size", {4, 2, 2}, {4, 3, 2}, "is no share of"},
      {"other columns", {4, 2, 2}, {8, 2, 2}, "is no share of"},
      {"as many values in other rows", {4, 2, 2}, {8, 2, 1}, "is no share of"},
      {"fewer experts", {4, 2, 2}, {4, 2, 1}, "is no share of"},
      {"a matrix", {4, 4}, {4, 2}, "is no share of"},
  };
  const Scratch scratch;
  for (const auto& [what, gate, up, message] : cases) {
    INFO(what);
    GgufBytes bytes = granite();
    for (const auto& [name, lengths] : {std::pair("gate", gate), std::pair("up", up)}) {
      if (lengths.empty()) continue;
      const auto count = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{1}, std::multiplies());
      bytes.tensors.push_back({std::string("blk.0.ffn_") + name + "_exps.weight", lengths, kF32, counting(count)});
    }
    check_error(ErrorCode::kCorrupt, {"m.gguf", "_exps.weight", message}, [&] { opened(scratch, bytes); });
  }
}
