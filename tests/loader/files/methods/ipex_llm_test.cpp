#include "loader/files/methods/ipex_llm.h"

#include <map>

#include "loader/files/tensor_reader.h"
#include "tests/loader/files/formats/pytorch/torch_file.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

// Of weight i of a block; another one for i + 32, with which it shares a byte.
int code_of(std::int64_t i) { return static_cast<int>((i + i % 64 / 32) % 16); }

std::string codes(bool is_low_first) {
  std::string out;
  for (int i = 0; i < 32; ++i)
    out += static_cast<char>(is_low_first ? code_of(i) | code_of(i + 32) << 4 : code_of(i) << 4 | code_of(i + 32));
  return out;
}

struct Type {
  std::string block;
  float (*value)(int code);
};

const float kNf4[] = {-1.0F,
                      -0.6961928009986877F,
                      -0.5250730514526367F,
                      -0.39491748809814453F,
                      -0.28444138169288635F,
                      -0.18477343022823334F,
                      -0.09105003625154495F,
                      0.0F,
                      0.07958029955625534F,
                      0.16093020141124725F,
                      0.24611230194568634F,
                      0.33791524171829224F,
                      0.44070982933044434F,
                      0.5626170039176941F,
                      0.7229568362236023F,
                      1.0F};
const float kFp4[] = {0, .5F, 1, 1.5F, 2, 3, 4, 6};

std::string int8_codes() {
  std::string out;
  for (int i = 0; i < 64; ++i) out += static_cast<char>(code_of(i) - 8);
  return out;
}

std::map<std::string, Type> types() {
  const std::string half = floats({0.75F}, Dtype::kFloat16), minimum = floats({-3.0F}, Dtype::kFloat16);
  const std::string single = floats({0.3F}, Dtype::kFloat32);
  return {{"sym_int4", {half + codes(true), [](int c) { return static_cast<float>(c - 8) * 0.75F; }}},
          {"asym_int4", {half + minimum + codes(true), [](int c) { return static_cast<float>(c) * 0.75F - 3.0F; }}},
          {"nf4", {half + codes(false), [](int c) { return kNf4[c] * 0.75F; }}},
          {"fp4", {half + codes(true), [](int c) { return (c < 8 ? kFp4[c] : -kFp4[c - 8]) * 0.75F; }}},
          {"sym_int8", {single + int8_codes(), [](int c) { return static_cast<float>(c - 8) * 0.3F; }}}};
}

ordered_json config_with(const std::string& low_bit) {
  ordered_json config = llama_config();
  config["hidden_size"] = 64, config["intermediate_size"] = 128, config["head_dim"] = 32;
  config["torch_dtype"] = "float32";
  config["bigdl_transformers_low_bit"] = low_bit;
  return config;
}

TestTensor packed(const std::string& name, std::int64_t values, const std::string& block) {
  std::string bytes;
  for (std::int64_t i = 0; i < values / 64; ++i) bytes += block;
  return {name, "U8", {static_cast<std::int64_t>(bytes.size())}, bytes};
}

// Weight i of a block, of `name`, in float32.
float value_of(const files::Checkpoint& checkpoint, const std::string& name, std::int64_t index) {
  const auto* record = checkpoint.manifest.find(name);
  REQUIRE(record);
  files::TensorReader reader(checkpoint, *record);
  std::vector<float> row(static_cast<std::size_t>(reader.row_size()));
  reader.read(index / reader.row_size() * reader.row_size(), row);
  return row[static_cast<std::size_t>(index % reader.row_size())];
}

const std::string kQuery = "model.layers.0.self_attn.q_proj.weight", kKey = "model.layers.0.self_attn.k_proj.weight",
                  kValue = "model.layers.0.self_attn.v_proj.weight", kDown = "model.layers.0.mlp.down_proj.weight";

void write(const fs::path& directory, const ordered_json& config, const std::vector<TestTensor>& tensors) {
  write_text(directory / "config.json", config.dump());
  write_text(directory / "load_keys.json", "{}");
  write_text(directory / "pytorch_model.bin", torch_file(tensors));
}

}  // namespace

TEST_CASE("ipex-llm: every type has its values", "[ipex]") {
  for (const auto& [name, type] : types()) {
    INFO(name);
    const Scratch scratch;
    write(scratch / "m", config_with(name),
          {packed(kQuery, 64 * 64, type.block), packed(kDown, 64 * 128, type.block),
           float_tensor("model.norm.weight", {64}, Dtype::kFloat32)});
    const auto opened = open_checkpoint(scratch / "m");
    CHECK(opened.kind == "ipex-llm");
    CHECK_FALSE(opened.config->contains("bigdl_transformers_low_bit"));
    CHECK(opened.side_files.empty());
    CHECK_FALSE(opened.manifest.find("model.norm.weight")->original_dtype);
    CHECK(opened.manifest.find(kDown)->shape == std::vector<std::int64_t>{64, 128});
    CHECK_FALSE(opened.manifest.find(kDown)->original_dtype);
    CHECK(opened.manifest.find(kDown)->scheme != nullptr);
    for (std::int64_t i = 0; i < 128; ++i) {
      const float wanted = type.value(code_of(i));
      CHECK(value_of(opened, kQuery, i) == wanted);
      CHECK(value_of(opened, kDown, 64 * 126 + i) == wanted);
    }
  }
}

TEST_CASE("ipex-llm: its own files, bit for bit", "[ipex]") {
  for (const char* name : {"sym_int4", "asym_int4", "nf4", "fp4"}) {
    const fs::path directory = shared_data() / "fixtures" / "peers" / ("ipexllm-" + std::string(name));
    if (!fs::exists(directory)) {
      WARN("skipped: " << directory << " is not here");
      return;
    }
    const auto opened = open_checkpoint(directory);
    const auto expected = open_checkpoint(directory / "expected.safetensors");
    CHECK(expected.tensors.size() == 3);
    for (const auto& tensor : expected.tensors) {
      INFO(name << " " << tensor.name);
      const auto* record = opened.manifest.find(tensor.name);
      REQUIRE(record);
      CHECK(record->shape == tensor.shape);
      files::TensorReader reader(opened, *record);
      std::vector<float> wanted(tensor.size_bytes / sizeof(float)), values(wanted.size());
      reader.read(0, values);
      files::read_stored(expected, tensor, 0, std::as_writable_bytes(std::span(wanted)));
      CHECK(std::memcmp(values.data(), wanted.data(), tensor.size_bytes) == 0);
    }
  }
}

TEST_CASE("ipex-llm: codes in a bfloat16 tensor, and a head of mixed precision", "[ipex]") {
  const Scratch scratch;
  TestTensor nf4 = packed(kDown, 64 * 128, types()["nf4"].block);
  nf4.dtype = "BF16";
  nf4.shape[0] /= 2;
  write(scratch / "m", config_with("nf4"), {nf4, packed("lm_head.weight", 16 * 64, types()["sym_int8"].block)});
  const auto opened = open_checkpoint(scratch / "m");
  CHECK((opened.manifest.find(kDown)->scheme->id == SchemeId::kNf4));
  CHECK((opened.manifest.find("lm_head.weight")->scheme->id == SchemeId::kSymInt8));
  CHECK(value_of(opened, "lm_head.weight", 9) == 0.3F);
}

TEST_CASE("ipex-llm: stacked projections come apart", "[ipex]") {
  const Scratch scratch;
  auto config = config_with("sym_int4");
  config["attention_bias"] = true;
  const std::string one = types()["sym_int4"].block;
  std::string two = one;
  two.replace(0, 2, floats({2.0F}, Dtype::kFloat16));
  TestTensor stacked = packed("model.layers.0.self_attn.qkv_proj.weight", 64 * 64, one);
  stacked.bytes += packed("", 2 * 32 * 64, two).bytes;
  stacked.shape[0] = static_cast<std::int64_t>(stacked.bytes.size());
  TestTensor bias = float_tensor("model.layers.0.self_attn.qkv_proj.bias", {128}, Dtype::kFloat32);
  write(scratch / "m", config, {stacked, bias});
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.tensors.size() == 3 * 3 + 3);
  CHECK(value_of(opened, kQuery, 9) == 0.75F);
  CHECK(value_of(opened, kKey, 9) == 2.0F);
  CHECK(value_of(opened, kValue, 7) == -2.0F);
  const auto* value_bias = opened.find("model.layers.0.self_attn.v_proj.bias");
  REQUIRE(value_bias);
  CHECK(value_bias->shape == std::vector<std::int64_t>{32});
  std::string bytes(value_bias->size_bytes, '\0');
  files::read_stored(opened, *value_bias, 0, std::as_writable_bytes(std::span(bytes)));
  CHECK(bytes == bias.bytes.substr(96 * 4));
  CHECK(opened.notes.back().find("qkv_proj") != std::string::npos);
}

TEST_CASE("ipex-llm: optimize_model's file says the type", "[ipex]") {
  const Scratch scratch;
  auto config = config_with("x");
  config.erase("bigdl_transformers_low_bit");
  write(scratch / "m", config, {packed(kQuery, 64 * 64, types()["sym_int4"].block)});
  write_text(scratch / "m" / "bigdl_config.json", R"({"bigdl_transformers_low_bit": "sym_int4"})");
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.is_quantized());
  CHECK(opened.side_files.empty());
}

TEST_CASE("ipex-llm: what is not read is refused by name", "[ipex][hostile]") {
  const Scratch scratch;
  const std::string block = types()["sym_int4"].block;
  const auto check = [&](ErrorCode code, const ordered_json& config, const TestTensor& tensor,
                         const std::string& part) {
    INFO(part);
    write(scratch / "m", config, {tensor});
    check_error(code, {part}, [&] { open_checkpoint(scratch / "m"); });
  };
  const auto kCorrupt = ErrorCode::kCorrupt, kUnsupported = ErrorCode::kUnsupported;
  for (const char* name : {"q4_k_m", "fp8_e4m3", "fp8", "sym_int5", "nf3", "sym_int4_rtn"})
    check(kUnsupported, config_with(name), packed(kQuery, 64, block), "ipex-llm's \"" + std::string(name));
  check(kUnsupported, config_with("sym_int4"), packed("model.layers.0.x.weight", 64, block),
        "whose shape nothing says");
  check(kCorrupt, config_with("sym_int4"), packed(kQuery, 64 * 32, block), "not those of [64, 64]");
  auto config = config_with("sym_int4");
  config["model_type"] = "nobody", config["architectures"] = ordered_json::array({"Nobody"});
  check(kUnsupported, config, packed(kQuery, 64 * 64, block), "family that is not known");
  config = config_with("sym_int4");
  config["bigdl_transformers_low_bit"] = 4;
  check(kCorrupt, config, packed(kQuery, 64 * 64, block), "bigdl_transformers_low_bit");
}
