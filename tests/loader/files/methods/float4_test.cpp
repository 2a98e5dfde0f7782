#include "loader/files/methods/float4.h"

#include <cmath>

#include "tests/loader/files/read_values.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

constexpr float kE2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

// Bytes of two codes, all sixteen in turn, low half first.
std::string codes(std::int64_t values) {
  std::string out;
  for (std::int64_t i = 0; i < values; i += 2) out += static_cast<char>((i % 16) | ((i + 1) % 16) << 4);
  return out;
}

// Value i of a weight of those codes.
template <class Scale>
std::vector<float> values(std::int64_t count, std::int64_t group_size, Scale scale) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(kE2m1[i % 16] * scale(i / group_size));
  return out;
}

std::string bytes_from(std::size_t count, unsigned first) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += static_cast<char>(first + i);
  return out;
}

ordered_json mxfp4_config() { return {{"model_type", "foo"}, {"quantization_config", {{"quant_method", "mxfp4"}}}}; }

ordered_json compressed_config(const std::string& format) {
  return {{"model_type", "foo"},
          {"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"quantization_status", "compressed"},
            {"config_groups", {{"group_0", {{"input_activations", {{"num_bits", 4}}}}}}}}}};
}

ordered_json modelopt_config() {
  return {{"model_type", "foo"}, {"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}}};
}

// E4M3: 1, 1.125 ... in eight steps, then 2.
std::string nvfp4_scales(std::size_t count) { return bytes_from(count, 0x38); }
float nvfp4_scale(std::int64_t group) { return group < 8 ? 1 + 0.125F * static_cast<float>(group) : 2; }

std::vector<TestTensor> nvfp4_tensors(bool is_modelopt) {
  const std::string packed = is_modelopt ? "a.weight" : "a.weight_packed";
  const std::string factor = is_modelopt ? "a.weight_scale_2" : "a.weight_global_scale";
  std::vector<std::int64_t> one{1};
  if (is_modelopt) one.clear();
  return {{packed, "U8", {3, 24}, codes(144)},
          {"a.weight_scale", "F8_E4M3", {3, 3}, nvfp4_scales(9)},
          {factor, "F32", one, floats({0.3F}, Dtype::kFloat32)},
          {is_modelopt ? "a.input_scale" : "a.input_global_scale", "F32", one, floats({7.0F}, Dtype::kFloat32)},
          float_tensor("n.weight", {5})};
}

files::Checkpoint opened(const Scratch& scratch, const std::vector<TestTensor>& tensors, const ordered_json& config) {
  write_checkpoint(scratch / "m", tensors, config);
  return open_checkpoint(scratch / "m");
}

}  // namespace

TEST_CASE("MXFP4: stacked experts stay where they lie, their scales are powers of two", "[float4]") {
  for (const bool is_openai : {false, true}) {
    INFO(is_openai);
    const Scratch scratch;
    const std::string blocks = is_openai ? ".blocks" : "_blocks", scales = is_openai ? ".scales" : "_scales";
    const ordered_json config = is_openai ? ordered_json{{"model_type", "foo"}} : mxfp4_config();
    const auto checkpoint = opened(scratch,
                                   {{"e.gate_up_proj" + blocks, "U8", {2, 3, 2, 16}, codes(384)},
                                    {"e.gate_up_proj" + scales, "U8", {2, 3, 2}, bytes_from(12, 120)},
                                    float_tensor("e.gate_up_proj_bias", {2, 3})},
                                   config);
    CHECK(checkpoint.kind == "MXFP4");
    CHECK_FALSE(checkpoint.config->contains("quantization_config"));
    const files::TensorRecord& record = record_of(checkpoint, "e.gate_up_proj");
    CHECK(record.shape == std::vector<std::int64_t>{2, 3, 64});
    CHECK(record.scheme == &scheme(SchemeId::kFp4E2m1));
    CHECK(record.group_size == 32);
    CHECK(record.scale_dtype == Dtype::kBfloat16);
    CHECK_FALSE(is_translated(checkpoint, *checkpoint.find(record.parts[files::Part::kCodes])));
    CHECK_THAT(checkpoint.notes.at(0), Catch::Contains("1 tensor is stacked experts"));
    check_values(values_of(checkpoint, "e.gate_up_proj"),
                 values(384, 32, [](std::int64_t g) { return std::ldexp(1.0F, static_cast<int>(g) - 7); }));
    CHECK(record_of(checkpoint, "e.gate_up_proj_bias").scheme == nullptr);
  }
}

TEST_CASE("MXFP4: the least scale is subnormal, the last is no number", "[float4]") {
  const Scratch scratch;
  const auto checkpoint = opened(
      scratch,
      {{"a_blocks", "U8", {1, 4, 16}, codes(128)}, {"a_scales", "U8", {1, 4}, std::string("\x00\x01\xfe\xff", 4)}},
      mxfp4_config());
  const std::vector<float> found = values_of(checkpoint, "a");
  CHECK(found[2] == std::ldexp(1.0F, -127));
  CHECK(found[1] == std::ldexp(1.0F, -128));
  CHECK(found[32 + 2] == std::ldexp(1.0F, -126));
  CHECK(found[64 + 2] == std::ldexp(1.0F, 127));
  CHECK(std::isnan(found[96 + 2]));
}

TEST_CASE("compressed-tensors: mxfp4-pack-quantized", "[float4]") {
  for (const char* dtype : {"U8", "F8_E8M0"}) {
    const Scratch scratch;
    const auto checkpoint =
        opened(scratch,
               {{"a.weight_packed", "U8", {3, 32}, codes(192)}, {"a.weight_scale", dtype, {3, 2}, bytes_from(6, 120)}},
               compressed_config("mxfp4-pack-quantized"));
    CHECK(checkpoint.kind == "compressed-tensors");
    CHECK(record_of(checkpoint, "a.weight").group_size == 32);
    check_values(values_of(checkpoint, "a.weight"),
                 values(192, 32, [](std::int64_t g) { return std::ldexp(1.0F, static_cast<int>(g) - 7); }));
  }
}

TEST_CASE("NVFP4: E4M3 scales are widened with the tensor's own by one rounding", "[float4]") {
  for (const bool is_modelopt : {false, true}) {
    INFO(is_modelopt);
    const Scratch scratch;
    const auto checkpoint = opened(scratch, nvfp4_tensors(is_modelopt),
                                   is_modelopt ? modelopt_config() : compressed_config("nvfp4-pack-quantized"));
    CHECK(checkpoint.kind == (is_modelopt ? "ModelOpt" : "compressed-tensors"));
    const files::TensorRecord& record = record_of(checkpoint, "a.weight");
    CHECK(record.shape == std::vector<std::int64_t>{3, 48});
    CHECK(record.group_size == 16);
    CHECK(record.scale_dtype == Dtype::kFloat32);
    CHECK_FALSE(is_translated(checkpoint, *checkpoint.find(record.parts[files::Part::kCodes])));
    REQUIRE(checkpoint.notes.size() == 1);
    CHECK_THAT(checkpoint.notes[0], Catch::Contains("1 tensor is left out"));
    check_values(values_of(checkpoint, "a.weight"), values(144, 16, [&](std::int64_t g) {
                   return is_modelopt ? nvfp4_scale(g) * 0.3F : nvfp4_scale(g) / 0.3F;
                 }));
  }
}

TEST_CASE("NVFP4: all 256 scales", "[float4]") {
  std::string scales;
  for (int byte = 0; byte < 256; ++byte) scales += static_cast<char>(byte);
  std::vector<TestTensor> tensors = nvfp4_tensors(true);
  tensors[0] = {"a.weight", "U8", {256, 8}, std::string(2048, '\x22')};  // each 1
  tensors[1] = {"a.weight_scale", "F8_E4M3", {256, 1}, scales};
  tensors[2].bytes = floats({1.0F}, Dtype::kFloat32);
  const Scratch scratch;
  const std::vector<float> found = values_of(opened(scratch, tensors, modelopt_config()), "a.weight");
  const auto at = [&](std::size_t byte) { return found[byte * 16]; };
  CHECK(at(0) == 0.0F);
  CHECK(at(1) == std::ldexp(1.0F, -9));
  CHECK(at(7) == std::ldexp(7.0F, -9));
  CHECK(at(8) == std::ldexp(1.0F, -6));
  CHECK(at(0x7e) == 448.0F);
  CHECK(std::isnan(at(0x7f)));
  CHECK(at(0xb8) == -1.0F);
  for (std::size_t byte = 1; byte < 0x7f; ++byte) CHECK(at(byte) > at(byte - 1));
}

TEST_CASE("ModelOpt: its own file says it where config.json does not", "[float4]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", nvfp4_tensors(true), ordered_json{{"model_type", "foo"}});
  write_text(scratch / "m/hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  CHECK(open_checkpoint(scratch / "m").kind == "ModelOpt");
  write_text(scratch / "m/hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  check_error(ErrorCode::kUnsupported, {"hf_quant_config.json", "FP8"}, [&] { open_checkpoint(scratch / "m"); });
  write_text(scratch / "m/hf_quant_config.json", R"({"quantization": 4})");
  check_error(ErrorCode::kCorrupt, {"hf_quant_config.json", "quantization"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("MXFP4 and NVFP4: parts that do not fit are corrupt, by name", "[float4][hostile]") {
  struct Case {
    std::vector<TestTensor> tensors;
    ordered_json config;
    ErrorCode code;
    std::vector<std::string> parts;
  };
  const auto changed = [](bool is_modelopt, std::size_t index, const TestTensor& tensor) {
    std::vector<TestTensor> out = nvfp4_tensors(is_modelopt);
    out[index] = tensor;
    return out;
  };
  const ordered_json mx = mxfp4_config(), nv = compressed_config("nvfp4-pack-quantized"), opt = modelopt_config();
  const TestTensor gone{"elsewhere", "U8", {1}, "1"};
  const std::int64_t huge = std::int64_t{1} << 62;
  using enum ErrorCode;
  const std::vector<Case> cases = {
      {{{"a_blocks", "U8", {2, 2, 16}, codes(128)}}, mx, kCorrupt, {"a_blocks", "a_scales", "missing"}},
      {{{"a_blocks", "U8", {2, 2, 8}, codes(64)}, {"a_scales", "U8", {2, 2}, "1234"}},
       mx,
       kCorrupt,
       {"a_blocks", "16"}},
      {{{"a_blocks", "U8", {4, 16}, codes(128)}, {"a_scales", "U8", {4}, "1234"}}, mx, kCorrupt, {"a_blocks", "16"}},
      {{{"a_blocks", "U8", {2, 2, 16}, codes(128)}, {"a_scales", "U8", {4}, "1234"}},
       mx,
       kCorrupt,
       {"a_blocks", "[4]"}},
      {{{"a_blocks", "U8", {2, 2, 16}, codes(128)}, {"a_scales", "F32", {1}, "1234"}},
       mx,
       kCorrupt,
       {"a_scales", "uint8"}},
      {{{"a_blocks", "U8", {0, huge, 16}, ""}, {"a_scales", "U8", {0, huge}, ""}}, mx, kCorrupt, {"a_blocks"}},
      {{{"a_blocks", "U8", {1, 1, 1, 1, 16}, codes(32)}, {"a_scales", "U8", {1, 1, 1, 1}, "1"}},
       mx,
       kCorrupt,
       {"a_blocks"}},
      {changed(false, 1, gone), nv, kCorrupt, {"a.weight_packed", "a.weight_scale", "missing"}},
      {changed(false, 1, {"a.weight_scale", "F8_E4M3", {3, 2}, nvfp4_scales(6)}),
       nv,
       kCorrupt,
       {"a.weight_packed", "[3, 2]"}},
      {changed(false, 1, {"a.weight_scale", "U8", {3, 3}, nvfp4_scales(9)}),
       nv,
       kCorrupt,
       {"a.weight_scale", "float8"}},
      {changed(false, 2, gone), nv, kCorrupt, {"a.weight_scale", "uint8"}},
      {changed(false, 2, {"a.weight_global_scale", "F32", {2}, "12345678"}), nv, kCorrupt, {"a.weight_global_scale"}},
      {changed(false, 0, {"a.weight_packed", "I32", {3, 6}, codes(144)}), nv, kCorrupt, {"a.weight_packed", "int32"}},
      {changed(false, 4, {"a.weight_zero_point", "I8", {1}, "1"}), nv, kUnsupported, {"a.weight_zero_point"}},
      {changed(false, 4, {"b.weight", "F8_E4M3", {1}, "1"}), nv, kUnsupported, {"b.weight"}},
      {changed(true, 0, gone), opt, kCorrupt, {"a.weight_scale_2", "a.weight", "missing"}},
      {changed(true, 2, {"a.weight_scale_2", "F16", {}, "12"}), opt, kCorrupt, {"a.weight_scale_2"}},
      {changed(true, 4, {"a.pre_quant_scale", "F32", {1}, "1234"}), opt, kUnsupported, {"a.pre_quant_scale"}},
  };
  for (const Case& hostile : cases) {
    INFO(hostile.parts.back());
    const Scratch scratch;
    check_error(hostile.code, hostile.parts, [&] { opened(scratch, hostile.tensors, hostile.config); });
  }
}
