#include "loader/files/formats/pytorch/meta.h"

#include <map>

#include "loader/files/row_order.h"
#include "tests/loader/files/formats/pytorch/torch_file.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

// Of llama_config().
const ordered_json kParams{{"dim", 32},         {"n_layers", 1},    {"n_heads", 2},    {"n_kv_heads", 1},
                           {"multiple_of", 32}, {"norm_eps", 1e-5}, {"vocab_size", -1}};
const std::map<std::string, std::string> kMetaNames{{"model.embed_tokens.weight", "tok_embeddings.weight"},
                                                    {"model.norm.weight", "norm.weight"},
                                                    {"lm_head.weight", "output.weight"},
                                                    {"self_attn.q_proj.weight", "attention.wq.weight"},
                                                    {"self_attn.k_proj.weight", "attention.wk.weight"},
                                                    {"self_attn.v_proj.weight", "attention.wv.weight"},
                                                    {"self_attn.o_proj.weight", "attention.wo.weight"},
                                                    {"mlp.gate_proj.weight", "feed_forward.w1.weight"},
                                                    {"mlp.down_proj.weight", "feed_forward.w2.weight"},
                                                    {"mlp.up_proj.weight", "feed_forward.w3.weight"},
                                                    {"input_layernorm.weight", "attention_norm.weight"},
                                                    {"post_attention_layernorm.weight", "ffn_norm.weight"}};

std::string rows_of(const TestTensor& tensor, const std::vector<std::int64_t>& rows) {
  const std::size_t width = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
  std::string out;
  for (const std::int64_t row : rows) out += tensor.bytes.substr(static_cast<std::size_t>(row) * width, width);
  return out;
}

std::string columns_of(const TestTensor& tensor, std::size_t part, std::size_t parts) {
  const std::size_t width = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]), step = width / parts;
  std::string out;
  for (std::size_t at = part * step; at < tensor.bytes.size(); at += width) out += tensor.bytes.substr(at, step);
  return out;
}

// The rows of a head's halves become neighbours.
std::vector<std::int64_t> interleaved(std::int64_t rows, std::int64_t heads) {
  std::vector<std::int64_t> out;
  const std::int64_t head = rows / heads;
  for (std::int64_t i = 0; i < rows; ++i) out.push_back(i / head * head + i % head / 2 + i % 2 * head / 2);
  return out;
}

TestTensor shard_of(TestTensor tensor, std::size_t shard, std::size_t shards, bool has_column_embedding) {
  const std::string prefix = "model.layers.0.";
  const bool is_of_layer = tensor.name.starts_with(prefix);
  const std::string name = is_of_layer ? tensor.name.substr(prefix.size()) : tensor.name;
  tensor.name = (is_of_layer ? "layers.0." : "") + kMetaNames.at(name);
  if (tensor.shape.size() == 1) return tensor;
  if (name.find("q_proj") != std::string::npos) tensor.bytes = rows_of(tensor, interleaved(32, 2));
  if (name.find("k_proj") != std::string::npos) tensor.bytes = rows_of(tensor, interleaved(16, 1));
  const bool is_columns = name.find("o_proj") != std::string::npos || name.find("down") != std::string::npos ||
                          (has_column_embedding && name.find("embed") != std::string::npos);
  if (is_columns) {
    tensor.bytes = columns_of(tensor, shard, shards);
  } else {
    const std::size_t size = tensor.bytes.size() / shards;
    tensor.bytes = tensor.bytes.substr(shard * size, size);
  }
  tensor.shape[is_columns ? 1 : 0] /= static_cast<std::int64_t>(shards);
  return tensor;
}

void write_meta(const fs::path& directory, std::size_t shards, bool has_column_embedding,
                const ordered_json& params = kParams) {
  write_text(directory / "params.json", params.dump());
  for (std::size_t shard = 0; shard < shards; ++shard) {
    std::vector<TestTensor> tensors{float_tensor("rope.freqs", {8})};
    for (const TestTensor& tensor : llama_tensors())
      tensors.push_back(shard_of(tensor, shard, shards, has_column_embedding));
    write_text(directory / ("consolidated.0" + std::to_string(shard) + ".pth"), torch_file(tensors));
  }
}

}  // namespace

TEST_CASE("meta: shards become the tensors that Hugging Face has", "[meta]") {
  for (const std::size_t shards : {1U, 2U, 4U}) {
    for (const bool has_column_embedding : {false, true}) {
      INFO(shards << " " << has_column_embedding);
      const Scratch scratch;
      write_meta(scratch / "m", shards, has_column_embedding);
      write_text(scratch / "m" / "tokenizer.model", "x");
      const auto opened = open_checkpoint(scratch / "m");
      CHECK(opened.kind == "Meta");
      REQUIRE(opened.architecture);
      CHECK((*opened.config)["intermediate_size"] == 64);
      CHECK((*opened.config)["vocab_size"] == 16);
      CHECK((*opened.config)["torch_dtype"] == "bfloat16");
      CHECK(std::ranges::find(opened.side_files, fs::path("tokenizer.model")) != opened.side_files.end());
      const auto wanted = llama_tensors();
      CHECK(opened.tensors.size() == wanted.size());
      for (const TestTensor& tensor : wanted) {
        INFO(tensor.name);
        const auto* found = opened.find(tensor.name);
        REQUIRE(found);
        CHECK(found->shape == tensor.shape);
        REQUIRE(found->size_bytes == tensor.bytes.size());
        std::string bytes(found->size_bytes, '\0');
        files::read_stored(opened, *found, 0, std::as_writable_bytes(std::span(bytes)));
        CHECK(bytes == tensor.bytes);
      }
      const bool is_mapped = !files::is_translated(opened, *opened.find("model.layers.0.mlp.up_proj.weight"));
      CHECK(is_mapped == (shards == 1));
    }
  }
}

TEST_CASE("meta: config.json of each generation", "[meta]") {
  const Scratch scratch;
  const auto config_with = [&](const ordered_json& changes) {
    ordered_json params = kParams;
    params.update(changes);
    write_meta(scratch / "m", 1, false, params);
    return *open_checkpoint(scratch / "m").config;
  };
  CHECK(config_with({{"norm_eps", 1e-6}})["max_position_embeddings"] == 2048);
  auto config = config_with({{"rope_theta", 500000.0}});
  CHECK(config["max_position_embeddings"] == 8192);
  CHECK(config["rope_theta"] == 500000.0);
  CHECK(config["bos_token_id"] == 128000);
  CHECK(config["rope_scaling"].is_null());
  config = config_with({{"rope_theta", 500000.0}, {"use_scaled_rope", true}});
  CHECK(config["rope_scaling"]["rope_type"] == "llama3");
  CHECK(config["rope_scaling"]["factor"] == 32.0);  // a small model
  CHECK(config["max_position_embeddings"] == 131072);
  write_text(scratch / "m" / "config.json", llama_config().dump());
  CHECK((*open_checkpoint(scratch / "m").config)["max_position_embeddings"] == 64);
}

TEST_CASE("meta: what does not fit together is refused", "[meta][hostile]") {
  struct Case {
    ordered_json params;
    ErrorCode code;
    std::string part;
  };
  const auto kCorrupt = ErrorCode::kCorrupt, kUnsupported = ErrorCode::kUnsupported;
  const std::vector<Case> cases{{{{"dim", 64}}, kCorrupt, "params.json wants"},
                                {{{"n_heads", 3}}, kCorrupt, "do not divide"},
                                {{{"n_kv_heads", 2}}, kCorrupt, "params.json wants"},
                                {{{"dim", 0}}, kCorrupt, "dim"},
                                {{{"dim", "x"}}, kCorrupt, "dim"},
                                {{{"vocab_size", 17}}, kCorrupt, "params.json wants"},
                                {{{"moe_args", {{"num_experts", 8}}}}, kUnsupported, "experts"},
                                {{{"quantization_args", {{"scheme", "x"}}}}, kUnsupported, "quantised"}};
  for (const Case& each : cases) {
    const Scratch scratch;
    ordered_json params = kParams;
    params.update(each.params);
    write_meta(scratch / "m", 2, false, params);
    INFO(each.part);
    check_error(each.code, {each.part}, [&] { open_checkpoint(scratch / "m"); });
  }
  const Scratch scratch;
  write_meta(scratch / "m", 3 - 1, true);
  fs::remove(scratch / "m" / "consolidated.01.pth");
  check_error(kCorrupt, {"over 1 shards"}, [&] { open_checkpoint(scratch / "m"); });
  write_meta(scratch / "n", 2, true);
  fs::remove(scratch / "n" / "consolidated.00.pth");
  check_error(kCorrupt, {"shard 0", "missing"}, [&] { open_checkpoint(scratch / "n"); });
  write_meta(scratch / "p", 2, true);
  fs::remove(scratch / "p" / "params.json");
  check_error(ErrorCode::kNotFound, {"params.json", "consolidated.00.pth"}, [&] { open_checkpoint(scratch / "p"); });
  write_text(scratch / "p" / "pytorch_model.bin", torch_file(llama_tensors()));
  CHECK(open_checkpoint(scratch / "p").kind == "PyTorch");
  write_text(scratch / "n" / "consolidated.00.pth", torch_file({float_tensor("norm.weight", {32})}));
  check_error(kCorrupt, {"is not in every shard"}, [&] { open_checkpoint(scratch / "n"); });
  write_text(scratch / "n" / "consolidated.00.pth", torch_file({float_tensor("layers.0.attention.wx.weight", {32})}));
  check_error(kUnsupported, {"wx", "none of Meta's Llama"}, [&] { open_checkpoint(scratch / "n"); });
}
