// GGUF files that are sound: what is read of them.
#include <algorithm>
#include <map>

#include "loader/files/checkpoint.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/tokenizer_directory.h"
#include "tests/loader/files/formats/gguf/bytes.h"
#include "tests/loader/files/read_values.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

// The same numbers; of zeros the sign is not compared, which codes of MXFP4 have and ggml drops.
bool is_same(const std::vector<float>& a, const std::vector<float>& b) { return std::ranges::equal(a, b); }

// Every tensor of the safetensors file has the same numbers in the checkpoint.
void check_values(const files::Checkpoint& checkpoint, const fs::path& expected) {
  const files::Checkpoint wanted = files::open_checkpoint(expected);
  REQUIRE(!wanted.manifest.tensors.empty());
  for (const files::TensorRecord& record : wanted.manifest.tensors) {
    INFO("tensor: " << record.name);
    CHECK(is_same(values_of(checkpoint, record.name), values_of(wanted, record.name)));
  }
}

// Values 0, 1, 2, ...; row r of `columns` begins with r * columns.
std::string counting(std::size_t count, float from = 0) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += raw(from + static_cast<float>(i));
  return out;
}

struct Sizes {
  std::string architecture = "llama";
  std::uint32_t heads = 2, key_heads = 1;
};

// What every family's configuration needs: hidden_size 32, one layer, heads of 16 values.
GgufBytes metadata(const Sizes& sizes = {}) {
  GgufBytes out;
  const std::string prefix = sizes.architecture + ".";
  out.text("general.architecture", sizes.architecture);
  out.number(prefix + "embedding_length", 32);
  out.number(prefix + "block_count", 1);
  out.number(prefix + "feed_forward_length", 64);
  out.number(prefix + "context_length", 128);
  out.number(prefix + "attention.head_count", sizes.heads);
  out.number(prefix + "attention.head_count_kv", sizes.key_heads);
  out.real(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
  out.tensors.push_back({"token_embd.weight", {32, 8}, 0, counting(256)});
  return out;
}

files::Checkpoint opened(const Scratch& scratch, const GgufBytes& bytes, const std::string& name = "m.gguf") {
  write_text(scratch / name, bytes.all());
  return files::open_checkpoint(scratch / name);
}

}  // namespace

TEST_CASE("every type of blocks has the values that ggml gives it", "[gguf]") {
  const auto checkpoint = files::open_checkpoint(test_data() / "gguf" / "types.gguf");
  CHECK(checkpoint.kind == "GGUF");
  CHECK(checkpoint.architecture == nullptr);
  check_values(checkpoint, test_data() / "gguf" / "types.expected.safetensors");
  CHECK(checkpoint.manifest.find("Q4_0")->scheme == &scheme(SchemeId::kSymInt4));
  CHECK(checkpoint.manifest.find("Q8_0")->scheme == &scheme(SchemeId::kSymInt8));
  CHECK(checkpoint.manifest.find("Q4_1")->scheme == &scheme(SchemeId::kAffineInt4));
  CHECK(checkpoint.manifest.find("IQ4_NL")->scheme == &scheme(SchemeId::kIq4Nl));
  CHECK(checkpoint.manifest.find("MXFP4")->scheme == &scheme(SchemeId::kFp4E2m1));
  CHECK(checkpoint.manifest.find("Q4_K")->scheme == nullptr);
  CHECK(!checkpoint.manifest.find("Q4_K")->original_dtype);
}

TEST_CASE("files that llama.cpp wrote have the values that it computes with", "[gguf]") {
  const fs::path folder = shared_data() / "fixtures" / "peers" / "gguf";
  if (!fs::exists(folder)) {
    WARN("skipped: " << folder << " is not here");
    return;
  }
  for (const char* type : {"IQ4_NL", "Q4_0", "Q4_1", "bf16", "f16", "q8_0"}) {
    INFO("type: " << type);
    const std::string stem = std::string("tiny-") + type;
    const auto checkpoint = files::open_checkpoint(folder / (stem + ".gguf"));
    REQUIRE(checkpoint.architecture);
    CHECK(checkpoint.architecture->model_type == "llama");
    check_values(checkpoint, folder / (stem + ".expected.safetensors"));
    const auto model = checkpoint.model_config();
    for (const auto& tensor : models::Architecture::expected(model))
      CHECK(checkpoint.manifest.find(tensor.name)->shape == tensor.shape);
  }
}

TEST_CASE("Q4_0 keeps its codes and scales", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes;
  std::string block = std::string("\x00\x3C", 2);  // 1.0
  for (int j = 0; j < 16; ++j) block += static_cast<char>(j | (15 - j) << 4);
  bytes.tensors.push_back({"w", {32, 1}, 2, block});
  const auto checkpoint = opened(scratch, bytes);
  std::string codes(16, '\0');
  files::read_stored(checkpoint, *checkpoint.find("w_packed"), 0, std::as_writable_bytes(std::span(codes)));
  CHECK(codes == std::string("\x10\x32\x54\x76\x98\xBA\xDC\xFE\xEF\xCD\xAB\x89\x67\x45\x23\x01", 16));
  std::string scale(2, '\0');
  files::read_stored(checkpoint, *checkpoint.find("w_scale"), 0, std::as_writable_bytes(std::span(scale)));
  CHECK(scale == std::string("\x00\x3C", 2));
  CHECK(values_of(checkpoint, "w")[1] == -7.0F);
  CHECK(values_of(checkpoint, "w")[31] == -8.0F);
}

TEST_CASE("Q4_1 and IQ4_NL keep their codes, scales and minima", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes;
  std::string codes;
  for (int j = 0; j < 16; ++j) codes += static_cast<char>(j | (15 - j) << 4);
  bytes.tensors.push_back({"a", {32, 1}, 3, std::string("\x00\x3C\x00\xC0", 4) + codes});  // 1.0 and -2.0
  bytes.tensors.push_back({"n", {32, 1}, 20, std::string("\x00\xB8", 2) + codes});         // -0.5
  const auto checkpoint = opened(scratch, bytes);
  const std::string wanted("\x10\x32\x54\x76\x98\xBA\xDC\xFE\xEF\xCD\xAB\x89\x67\x45\x23\x01", 16);
  const auto stored = [&](const char* name, std::size_t size) {
    std::string out(size, '\0');
    files::read_stored(checkpoint, *checkpoint.find(name), 0, std::as_writable_bytes(std::span(out)));
    return out;
  };
  CHECK(stored("a_packed", 16) == wanted);
  CHECK(stored("a_scale", 2) == std::string("\x00\x3C", 2));
  CHECK(stored("a_offset", 2) == std::string("\x00\xC0", 2));
  CHECK(values_of(checkpoint, "a")[0] == -2.0F);
  CHECK(values_of(checkpoint, "a")[17] == 12.0F);
  CHECK(stored("n_packed", 16) == wanted);
  CHECK(stored("n_scale", 2) == std::string("\x00\xB8", 2));
  CHECK(values_of(checkpoint, "n")[0] == 63.5F);
  CHECK(values_of(checkpoint, "n")[8] == -0.5F);
}

TEST_CASE("Llama's queries and keys get transformers' row order back", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes = metadata();
  bytes.tensors.push_back({"blk.0.attn_q.weight", {32, 32}, 0, counting(1024)});
  bytes.tensors.push_back({"blk.0.attn_q.bias", {32}, 0, counting(32)});
  bytes.tensors.push_back({"blk.0.attn_v.weight", {32, 16}, 0, counting(512)});
  std::string packed;
  for (int row = 0; row < 16; ++row)
    packed += std::string("\x00\x3C", 2) + std::string(16, static_cast<char>(row * 17));
  bytes.tensors.push_back({"blk.0.attn_k.weight", {32, 16}, 2, packed});
  const auto checkpoint = opened(scratch, bytes);
  const auto query = values_of(checkpoint, "model.layers.0.self_attn.q_proj.weight");
  const auto bias = values_of(checkpoint, "model.layers.0.self_attn.q_proj.bias");
  const auto key = values_of(checkpoint, "model.layers.0.self_attn.k_proj.weight");
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t r = 0; r < 16; ++r) {
      const std::size_t stored = head * 16 + (r < 8 ? 2 * r : 2 * (r - 8) + 1);
      CHECK(query[(head * 16 + r) * 32] == static_cast<float>(stored * 32));
      CHECK(bias[head * 16 + r] == static_cast<float>(stored));
      if (head == 0) CHECK(key[r * 32 + 31] == static_cast<float>(stored) - 8.0F);
    }
  }
  CHECK(values_of(checkpoint, "model.layers.0.self_attn.v_proj.weight")[32] == 32.0F);
  CHECK(checkpoint.find("model.layers.0.self_attn.v_proj.weight")->file == 0);  // mapped where it lies
  CHECK((*checkpoint.config)["attention_bias"] == true);
}

TEST_CASE("the configuration comes from the metadata", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes = metadata();
  bytes.real("llama.rope.freq_base", 500000.0F);
  bytes.number("tokenizer.ggml.eos_token_id", 2);
  bytes.number("tokenizer.ggml.eot_token_id", 5);
  const auto checkpoint = opened(scratch, bytes);
  REQUIRE(checkpoint.architecture);
  const auto model = checkpoint.model_config();
  CHECK(model.hidden_size == 32);
  CHECK(model.vocab_size == 8);
  CHECK(model.head_dim == 16);
  CHECK(model.num_key_value_heads == 1);
  CHECK(model.norm_eps == 1e-5);
  CHECK(model.ropes.at(0).theta == 500000.0);
  CHECK(model.tie_word_embeddings);
  CHECK(model.eos_token_ids == std::vector<std::int64_t>{2, 5});
}

TEST_CASE("Llama 3's scaling of positions is found in what it comes to", "[gguf]") {
  Scratch scratch;
  const auto scaling_of = [&](const std::string& divisors) {
    GgufBytes bytes = metadata();
    bytes.real("llama.rope.freq_base", 500000.0F);
    bytes.tensors.push_back({"rope_freqs.weight", {8}, 0, divisors});
    const auto checkpoint = opened(scratch, bytes);
    CHECK(checkpoint.find("rope_freqs.weight") == nullptr);
    return (*checkpoint.config)["rope_scaling"];
  };
  std::string llama3;  // of head_dim 16, theta 500000, factor 8
  for (const double value : {1.0, 1.0, 1.0, 1.0, 2.694531, 8.0, 8.0, 8.0}) llama3 += raw(static_cast<float>(value));
  CHECK(scaling_of(llama3)["rope_type"] == "llama3");
  CHECK(scaling_of(llama3)["factor"] == 8.0);
  std::string short_context;  // the same with an original context of 64
  for (const double value : {1.0, 2.4422594, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0})
    short_context += raw(static_cast<float>(value));
  CHECK(scaling_of(short_context)["original_max_position_embeddings"] == 64);
  CHECK(scaling_of(counting(8, 1))["rope_type"] == "longrope");
  CHECK(scaling_of(counting(8, 1))["long_factor"][7] == 8.0);
}

TEST_CASE("Gemma's norms lose the one that was added to them", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes = metadata({.architecture = "gemma"});
  bytes.tensors.push_back({"blk.0.attn_norm.weight", {32}, 0, counting(32, 1.5F)});
  const auto checkpoint = opened(scratch, bytes);
  const auto norm = values_of(checkpoint, "model.layers.0.input_layernorm.weight");
  CHECK(norm[0] == 0.5F);
  CHECK(norm[31] == 31.5F);
  CHECK(checkpoint.manifest.find("model.layers.0.input_layernorm.weight")->original_dtype == Dtype::kFloat32);
}

TEST_CASE("stacks of experts come apart", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes = metadata();
  bytes.number("llama.expert_count", 2);
  bytes.number("llama.expert_used_count", 1);
  bytes.tensors.push_back({"blk.0.ffn_gate_inp.weight", {32, 2}, 0, counting(64)});
  bytes.tensors.push_back({"blk.0.ffn_up_exps.weight", {32, 64, 2}, 0, counting(4096)});
  std::string packed;
  for (int block = 0; block < 128; ++block)
    packed += std::string("\x00\x3C", 2) + std::string(32, static_cast<char>(block));
  bytes.tensors.push_back({"blk.0.ffn_gate_exps.weight", {32, 64, 2}, 8, packed});
  bytes.tensors.push_back({"blk.0.ffn_down.1.weight", {64, 32}, 0, counting(2048)});  // as files of 2023 have them
  const auto checkpoint = opened(scratch, bytes);
  CHECK(checkpoint.architecture->model_type == "mixtral");
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  CHECK(values_of(checkpoint, experts + "1.w3.weight")[0] == 2048.0F);
  CHECK(values_of(checkpoint, experts + "1.w1.weight")[0] == 64.0F);
  CHECK(values_of(checkpoint, experts + "0.w1.weight")[2047] == 63.0F);
  CHECK(values_of(checkpoint, experts + "1.w2.weight")[1] == 1.0F);
  CHECK(checkpoint.find("model.layers.0.block_sparse_moe.gate.weight"));
}

TEST_CASE("every family's tensors get its own names", "[gguf]") {
  Scratch scratch;
  const std::map<std::string, std::vector<std::pair<std::string, std::string>>> names = {
      {"phi3", {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}}},
      {"qwen3", {{"attn_q_norm", "self_attn.q_norm"}, {"ffn_up", "mlp.up_proj"}}},
      {"gemma2", {{"post_ffw_norm", "post_feedforward_layernorm"}, {"ffn_norm", "pre_feedforward_layernorm"}}},
      {"glm4", {{"post_attention_norm", "post_self_attn_layernorm"}, {"ffn_norm", "post_attention_layernorm"}}}};
  for (const auto& [architecture, tensors] : names) {
    INFO("architecture: " << architecture);
    GgufBytes bytes = metadata({.architecture = architecture});
    for (const auto& [gguf, wanted] : tensors)
      bytes.tensors.push_back({"blk.0." + gguf + ".weight", {32}, 0, counting(32)});
    const auto checkpoint = opened(scratch, bytes);
    CHECK(checkpoint.architecture->model_type == architecture);
    for (const auto& [gguf, wanted] : tensors) CHECK(checkpoint.find("model.layers.0." + wanted + ".weight"));
  }
  GgufBytes chatglm = metadata({.architecture = "chatglm"});
  chatglm.tensors.push_back({"blk.0.attn_qkv.weight", {32}, 0, counting(32)});
  CHECK(opened(scratch, chatglm).find("transformer.encoder.layers.0.self_attention.query_key_value.weight"));
}

TEST_CASE("the parts of a split file are one model, whichever is named", "[gguf]") {
  Scratch scratch;
  const auto part = [](std::uint32_t number, std::uint32_t count) {
    GgufBytes out;
    if (number == 0) out = metadata();
    out.entry("split.no", 2, raw(static_cast<std::uint16_t>(number)));
    out.entry("split.count", 2, raw(static_cast<std::uint16_t>(count)));
    out.number("split.tensors.count", 3);
    if (number == 1) {
      out.tensors.push_back({"blk.0.attn_v.weight", {32, 16}, 2, std::string(16 * 18, '\0')});
      out.tensors.push_back({"blk.0.attn_q.weight", {32, 32}, 0, counting(1024)});
    }
    return out.all();
  };
  const fs::path first = scratch / "m" / "x-00001-of-00002.gguf", second = scratch / "m" / "x-00002-of-00002.gguf";
  write_text(first, part(0, 2));
  check_error(ErrorCode::kCorrupt, {"x-00002-of-00002.gguf", "missing"}, [&] { files::open_checkpoint(first); });
  write_text(second, part(1, 2));
  for (const fs::path& path : {first, second, scratch / "m"}) {
    const auto checkpoint = files::open_checkpoint(path);
    CHECK(checkpoint.find("model.embed_tokens.weight"));
    CHECK(values_of(checkpoint, "model.layers.0.self_attn.q_proj.weight")[32] == 64.0F);
    CHECK(checkpoint.manifest.find("model.layers.0.self_attn.v_proj.weight")->scheme);
  }
  write_text(second, part(0, 2));
  check_error(ErrorCode::kCorrupt, {"x-00002-of-00002.gguf", "part 1 of 2"}, [&] { files::open_checkpoint(first); });
  write_text(second, part(2, 2));
  check_error(ErrorCode::kCorrupt, {"part 3 of 2"}, [&] { files::open_checkpoint(second); });
}

TEST_CASE("a GGUF file of 123 tensors is not taken for safetensors", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes;
  for (int i = 0; i < 123; ++i) bytes.tensors.push_back({std::to_string(i), {1}, 0, raw(1.0F)});
  CHECK(opened(scratch, bytes).kind == "GGUF");
}

TEST_CASE("a byte-level vocabulary becomes tokenizer.json", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes = metadata();
  bytes.text("tokenizer.ggml.model", "gpt2");
  bytes.text("tokenizer.ggml.pre", "llama-bpe");
  bytes.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<own>", "[PAD5]"});
  bytes.list("tokenizer.ggml.token_type", kGgufI32, 6, raw(1) + raw(1) + raw(1) + raw(3) + raw(4) + raw(5));
  bytes.texts("tokenizer.ggml.merges", {"a b"});
  bytes.number("tokenizer.ggml.bos_token_id", 3);
  bytes.text("tokenizer.chat_template", "{{ ''.__class__ }}");
  auto checkpoint = opened(scratch, bytes);
  const auto json = nlohmann::json::parse(checkpoint.generated_files.at("tokenizer.json")());
  CHECK(json["model"]["vocab"] == nlohmann::json({{"a", 0}, {"b", 1}, {"ab", 2}}));
  CHECK(json["model"]["merges"] == nlohmann::json::parse(R"([["a","b"]])"));
  CHECK(json["model"]["ignore_merges"] == true);
  CHECK(json["added_tokens"].size() == 2);
  CHECK(json["added_tokens"][0]["special"] == true);
  CHECK(json["added_tokens"][1]["special"] == false);
  CHECK(json["post_processor"]["single"][0]["SpecialToken"]["id"] == "<s>");
  const auto config = nlohmann::json::parse(checkpoint.generated_files.at("tokenizer_config.json")());
  CHECK(config["bos_token"] == "<s>");
  CHECK(config["chat_template"] == "{{ ''.__class__ }}");  // a text, and never run
  // A tokenizer that lies beside the file is believed first.
  write_text(scratch / "d" / "m.gguf", bytes.all());
  CHECK(files::TokenizerDirectory(scratch / "d").path() != scratch / "d");
  write_text(scratch / "d" / "tokenizer.json", "{}");
  CHECK(files::TokenizerDirectory(scratch / "d").path() == scratch / "d");
  CHECK(!files::open_checkpoint(scratch / "d").generated_files.contains("tokenizer.json"));
}

TEST_CASE("a SentencePiece vocabulary becomes tokenizer.model, in a folder that goes away", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes = metadata();
  bytes.text("tokenizer.ggml.model", "llama");
  bytes.texts("tokenizer.ggml.tokens", {"<unk>", "a", "a"});
  bytes.list("tokenizer.ggml.scores", kGgufF32, 3, raw(0.0F) + raw(-1.0F) + raw(-2.0F));
  bytes.list("tokenizer.ggml.token_type", kGgufI32, 3, raw(2) + raw(1) + raw(1));
  opened(scratch, bytes);
  fs::path made;
  {
    const files::TokenizerDirectory directory(scratch / "m.gguf");
    made = directory.path();
    const std::string model = read_text(made / "tokenizer.model");
    // piece { piece: "<unk>" score: 0 type: UNKNOWN }, piece { "a" -1 NORMAL }, and the second "a" renamed.
    CHECK(model.starts_with(std::string("\x0A\x0E\x0A\x05<unk>\x15\0\0\0\0\x18\x02", 16)));
    CHECK(model.find(std::string("\x0A\x0A\x0A\x01"
                                 "a\x15\0\0\x80\xBF\x18\x01",
                                 12)) == 16);
    CHECK(model.find("[UNUSED2]") != std::string::npos);
  }
  CHECK(!fs::exists(made));
}
