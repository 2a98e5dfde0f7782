// Checkpoints that do not fit their config.json: each is an error that names the tensor, never a random initialisation.
#include "tests/catch.h"

#include <fstream>
#include <functional>
#include <map>

#include <nlohmann/json.hpp>

#include <halfbyte/load_low_bit.h>

#include "tests/places.h"

namespace halfbyte {
namespace {

using nlohmann::json;

struct Tensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
};

// A Llama of one layer: 32 hidden, 2 heads, 64 FFN, 40 tokens.
std::map<std::string, Tensor> good_tensors() {
  const std::string layer = "model.layers.0.";
  std::map<std::string, Tensor> tensors = {{"model.embed_tokens.weight", {"BF16", {40, 32}}},
                                           {"lm_head.weight", {"BF16", {40, 32}}},
                                           {"model.norm.weight", {"F32", {32}}},
                                           {layer + "input_layernorm.weight", {"F32", {32}}},
                                           {layer + "post_attention_layernorm.weight", {"F16", {32}}},
                                           {layer + "mlp.gate_proj.weight", {"BF16", {64, 32}}},
                                           {layer + "mlp.up_proj.weight", {"BF16", {64, 32}}},
                                           {layer + "mlp.down_proj.weight", {"BF16", {32, 64}}}};
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    tensors[layer + "self_attn." + name + ".weight"] = {"F16", {32, 32}};
  }
  return tensors;
}

json good_config() {
  return {{"model_type", "llama"},         {"hidden_size", 32},           {"intermediate_size", 64},
          {"num_hidden_layers", 1},        {"num_attention_heads", 2},    {"vocab_size", 40},
          {"max_position_embeddings", 64}, {"tie_word_embeddings", false}};
}

void write_model(const std::filesystem::path& directory, const json& config,
                 const std::map<std::string, Tensor>& tensors) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "config.json") << config.dump();
  const std::map<std::string, std::uint64_t> sizes = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"F8_E4M3", 1}};
  json header = json::object();
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    std::uint64_t bytes = sizes.at(tensor.dtype);
    for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(directory / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << text << std::string(offset, '\0');
}

std::string error_of(const std::filesystem::path& directory, ErrorCode wanted) {
  try {
    load_low_bit(directory);
  } catch (const Error& error) {
    CHECK(error.code() == wanted);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "no error";
}

TEST_CASE("a mixed-dtype checkpoint that fits its config loads", "[load]") {
  tests::Scratch scratch;
  write_model(scratch / "good", good_config(), good_tensors());
  CHECK(error_of(scratch / "good", ErrorCode::kCorrupt) == "no error");
}

TEST_CASE("a checkpoint that does not fit its config is refused by tensor", "[load]") {
  using Tensors = std::map<std::string, Tensor>;
  struct Case {
    const char* name;
    std::function<void(json&, Tensors&)> breaks;
    ErrorCode code;
    std::vector<std::string> says;
  };
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  const std::vector<Case> cases = {
      {"missing", [&](json&, Tensors& t) { t.erase(down); }, ErrorCode::kCorrupt, {down, "missing"}},
      {"missing head",
       [](json&, Tensors& t) { t.erase("lm_head.weight"); },
       ErrorCode::kCorrupt,
       {"lm_head.weight", "missing"}},
      {"missing layer",
       [](json& c, Tensors&) { c["num_hidden_layers"] = 2; },
       ErrorCode::kCorrupt,
       {"model.layers.1.input_layernorm.weight", "and 8 more", "missing"}},
      {"extra",
       [](json&, Tensors& t) { t["model.layers.1.mlp.up_proj.weight"] = {"BF16", {64, 32}}; },
       ErrorCode::kCorrupt,
       {"model.layers.1.mlp.up_proj.weight", "belongs to no module"}},
      {"shape",
       [&](json&, Tensors& t) { t[down].shape = {32, 32}; },
       ErrorCode::kCorrupt,
       {down, "[32, 32]", "[32, 64]"}},
      {"rank", [&](json&, Tensors& t) { t[down].shape = {2048}; }, ErrorCode::kCorrupt, {down, "[2048]"}},
      {"integer", [&](json&, Tensors& t) { t[down].dtype = "I64"; }, ErrorCode::kUnsupported, {down, "int64"}},
      {"float8",
       [&](json&, Tensors& t) { t[down].dtype = "F8_E4M3"; },
       ErrorCode::kUnsupported,
       {down, "float8_e4m3fn"}},
      {"family",
       [](json& c, Tensors&) { c["model_type"] = "nonesuch"; },
       ErrorCode::kUnsupported,
       {"nonesuch", "llama"}},
  };
  for (const Case& test : cases) {
    INFO(test.name);
    tests::Scratch scratch;
    json config = good_config();
    auto tensors = good_tensors();
    test.breaks(config, tensors);
    write_model(scratch / "model", config, tensors);
    const std::string message = error_of(scratch / "model", test.code);
    for (const std::string& part : test.says) CHECK_THAT(message, Catch::Contains(part));
  }
}

TEST_CASE("a stored rotary buffer of an old checkpoint is noted, and not used", "[load]") {
  tests::Scratch scratch;
  auto tensors = good_tensors();
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F16", {8}};
  write_model(scratch / "old", good_config(), tensors);
  const Model model = load_low_bit(scratch / "old");
  bool noted = false;
  for (const std::string& note : model.report().notes)
    noted |= note.find("rotary_emb.inv_freq is stored") != std::string::npos;
  CHECK(noted);
}

}  // namespace
}  // namespace halfbyte
