#include "loader/files/methods/gptq.h"

#include "loader/files/methods/gptq_layout.h"
#include "loader/files/verify.h"
#include "tests/loader/files/methods/peer.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

std::string words(const std::vector<std::uint32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::uint32_t)};
}

TestTensor int32s(const std::string& name, std::vector<std::int64_t> shape, const std::vector<std::uint32_t>& values) {
  return {name, "I32", std::move(shape), words(values)};
}

TestTensor halves(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
  return {name, "F16", std::move(shape), floats(values, Dtype::kFloat16)};
}

ordered_json gptq_config() {
  return {{"model_type", "foo"},
          {"quantization_config",
           {{"quant_method", "gptq"},
            {"bits", 4},
            {"group_size", 8},
            {"desc_act", false},
            {"sym", false},
            {"lm_head", false},
            {"checkpoint_format", "gptq"}}}};
}

ordered_json& quantization(ordered_json& config) { return config["quantization_config"]; }

// 16 inputs in two groups, 3 outputs. Output 0 has codes 0 ... 15, output 1 has 15 ... 0, output 2 has 5. Zero points:
// group 0: 8, 1, 4; group 1: 2, 3, 15 (each stored less one). Fields past the last output hold rubbish.
std::vector<TestTensor> gptq_tensors() {
  return {int32s("a.qweight", {2, 3}, {0x76543210, 0x89abcdef, 0x55555555, 0xfedcba98, 0x01234567, 0x55555555}),
          int32s("a.qzeros", {2, 1}, {0xccccc307, 0xccccce21}),
          halves("a.scales", {2, 3}, {1, 0.5F, 2, -1, 4, 0.25F}),
          int32s("a.g_idx", {16}, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}),
          halves("a.bias", {3}, {1, 2, 3}),
          float_tensor("n.weight", {8}, Dtype::kFloat16)};
}

std::vector<float> gptq_values() {
  return {-8, -7,   -6, -5,   -4, -3,   -2, -1,   -6,    -7,    -8,    -9,    -10,   -11,   -12,   -13,  // output 0
          7,  6.5F, 6,  5.5F, 5,  4.5F, 4,  3.5F, 16,    12,    8,     4,     0,     -4,    -8,    -12,  // output 1
          2,  2,    2,  2,    2,  2,    2,  2,    -2.5F, -2.5F, -2.5F, -2.5F, -2.5F, -2.5F, -2.5F, -2.5F};
}

void write(const fs::path& directory, const ordered_json& config, const std::vector<TestTensor>& tensors) {
  write_checkpoint(directory, tensors, config);
}

// The values of a.weight of such a checkpoint.
std::vector<float> opened_values(const ordered_json& config, const std::vector<TestTensor>& tensors) {
  const Scratch scratch;
  write(scratch / "m", config, tensors);
  return values_of(open_checkpoint(scratch / "m"), "a.weight");
}

}  // namespace

TEST_CASE("GPTQ: codes, zero points and scales of bytes written by hand", "[gptq]") {
  const Scratch scratch;
  write(scratch / "m", gptq_config(), gptq_tensors());
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.kind == "GPTQ");
  CHECK_FALSE(opened.config->contains("quantization_config"));
  const auto* record = opened.manifest.find("a.weight");
  REQUIRE(record);
  CHECK(record->scheme == &scheme(SchemeId::kAsymInt4));
  CHECK(record->shape == std::vector<std::int64_t>{3, 16});
  CHECK(record->group_size == 8);
  CHECK_FALSE(record->original_dtype);
  CHECK(values_of(opened, "a.weight") == gptq_values());
  CHECK(values_of(opened, "a.bias") == std::vector<float>{1, 2, 3});
  CHECK(opened.manifest.tensors.size() == 3);
  CHECK(files::verify(opened).findings.empty());
}

TEST_CASE("GPTQ: version 2 stores zero points as they are", "[gptq]") {
  auto config = gptq_config();
  quantization(config)["checkpoint_format"] = "gptq_v2";
  auto tensors = gptq_tensors();
  tensors[1] = int32s("a.qzeros", {2, 1}, {0xccccc418, 0xcccccf32});
  CHECK(opened_values(config, tensors) == gptq_values());
}

TEST_CASE("GPTQ: version 1 is a subtraction from the whole word", "[gptq]") {
  for (const std::uint32_t word : {0x00000000u, 0x12345670u, 0x80000008u, 0xffffffffu})
    CHECK(files::from_gptq_v1(files::to_gptq_v1(word, 4), 4) == word);
  CHECK(files::from_gptq_v1(0x77777777u, 4) == 0x88888888u);
  CHECK(files::from_gptq_v1(0x7f7f7f7fu, 8) == 0x80808080u);
  // A zero point of 0 borrows from the next one.
  CHECK(files::to_gptq_v1(0x00000050u, 4) == 0xeeeeef3fu);
}

TEST_CASE("GPTQ: symmetric where the zero points bear it out", "[gptq]") {
  auto config = gptq_config();
  quantization(config)["sym"] = true;
  auto tensors = gptq_tensors();
  CHECK(opened_values(config, tensors) == gptq_values());  // they do not: read as they are
  tensors[1] = int32s("a.qzeros", {2, 1}, {0x00000777, 0x77777777});
  const Scratch scratch;
  write(scratch / "m", config, tensors);
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.manifest.find("a.weight")->scheme == &scheme(SchemeId::kSymInt4));
  CHECK_FALSE(opened.find("a.weight_zero_point"));
  CHECK(values_of(opened, "a.weight")[0] == -8);
  tensors[1] = int32s("a.qzeros", {2, 1}, {0x00000777, 0x00000677});
  write(scratch / "later", config, tensors);
  const auto later = open_checkpoint(scratch / "later");
  check_error(ErrorCode::kCorrupt, {"a.weight", "zero points"}, [&] { values_of(later, "a.weight"); });
}

TEST_CASE("GPTQ: columns in an order of their own stay packed, sorted by group", "[gptq]") {
  auto config = gptq_config();
  quantization(config)["desc_act"] = true;
  auto tensors = gptq_tensors();
  tensors[3] = int32s("a.g_idx", {16}, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  const Scratch scratch;
  write(scratch / "m", config, tensors);
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.notes.back().find("desc_act") != std::string::npos);
  const auto* record = opened.manifest.find("a.weight");
  REQUIRE(record->scheme == &scheme(SchemeId::kAsymInt4));
  CHECK_FALSE(record->original_dtype);
  std::vector<std::int32_t> order(16);
  const auto* part = opened.find(record->parts[files::Part::kColumnOrder]);
  REQUIRE(part);
  files::read_stored(opened, *part, 0, std::as_writable_bytes(std::span(order)));
  CHECK(order == std::vector<std::int32_t>{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15});
  std::vector<std::uint32_t> codes(6);
  files::read_stored(opened, *opened.find("a.weight_packed"), 0, std::as_writable_bytes(std::span(codes)));
  CHECK(codes == std::vector<std::uint32_t>{0xeca86420, 0xfdb97531, 0x13579bdf, 0x02468ace, 0x55555555, 0x55555555});
  const std::vector<float> values = values_of(opened, "a.weight");
  CHECK(std::vector(values.begin(), values.begin() + 4) == std::vector<float>{-8, 1, -6, -1});  // output 0
  CHECK(std::vector(values.begin() + 16, values.begin() + 20) == std::vector<float>{7, 44, 6, 36});
  CHECK(files::verify(opened).findings.empty());
  tensors[3] = int32s("a.g_idx", {16}, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1});  // 7 and 9
  write(scratch / "uneven", config, tensors);
  const auto uneven = open_checkpoint(scratch / "uneven");
  CHECK(uneven.manifest.find("a.weight")->scheme == nullptr);
  CHECK_FALSE(uneven.manifest.find("a.weight")->original_dtype);
  CHECK(uneven.notes.back().find("float32") != std::string::npos);
  CHECK(values_of(uneven, "a.weight")[12] == 4);
  CHECK(values_of(uneven, "a.weight")[14] == -12);
  tensors[3] = int32s("a.g_idx", {16}, std::vector<std::uint32_t>(16, 0));  // never filled in
  CHECK(opened_values(config, tensors) == gptq_values());
  for (const std::uint32_t group : {2u, 0xffffffffu}) {
    tensors[3] = int32s("a.g_idx", {16}, std::vector<std::uint32_t>(16, group));
    write(scratch / "bad", config, tensors);
    check_error(ErrorCode::kCorrupt, {"a.g_idx", "names group"}, [&] { open_checkpoint(scratch / "bad"); });
  }
}

TEST_CASE("GPTQ: one group a row, and a last group that is shorter", "[gptq]") {
  auto config = gptq_config();
  quantization(config)["group_size"] = -1;
  auto tensors = gptq_tensors();
  tensors[1] = int32s("a.qzeros", {1, 1}, {0x00000307});
  tensors[2] = halves("a.scales", {1, 3}, {1, 0.5F, 2});
  tensors.erase(tensors.begin() + 3);  // g_idx may be absent
  const std::vector<float> values = opened_values(config, tensors);
  CHECK(values[15] == 7);
  CHECK(values[16 + 15] == -0.5F);
  quantization(config)["group_size"] = 12;
  const std::vector<float> shorter = opened_values(config, {gptq_tensors()[0], gptq_tensors()[1], gptq_tensors()[2]});
  CHECK(shorter[11] == 3);
  CHECK(shorter[12] == -10);
}

TEST_CASE("GPTQ: 8 bits", "[gptq]") {
  auto config = gptq_config();
  quantization(config)["bits"] = 8;
  quantization(config)["sym"] = true;
  std::vector<TestTensor> tensors{int32s("a.qweight", {2, 1}, {0x807fff00, 0x03020181}),
                                  int32s("a.qzeros", {1, 1}, {0xcccccc7f}), halves("a.scales", {1, 1}, {2})};
  CHECK(opened_values(config, tensors) == std::vector<float>{-256, 254, -2, 0, 2, -254, -252, -250});
  tensors[1] = int32s("a.qzeros", {1, 1}, {0xcccccc00});  // 1
  CHECK(opened_values(config, tensors) == std::vector<float>{-2, 508, 252, 254, 256, 0, 2, 4});
}

TEST_CASE("GPTQ: a bias of zeros that the family does not have is left out", "[gptq]") {
  const Scratch scratch;
  ordered_json config = llama_config();
  config["quantization_config"] = gptq_config()["quantization_config"];
  const std::string module = "model.layers.0.self_attn.o_proj";
  std::vector<TestTensor> tensors = gptq_tensors();
  for (TestTensor& tensor : tensors) {
    if (tensor.name.starts_with("a.")) tensor.name.replace(0, 1, module);
  }
  write(scratch / "some", config, tensors);
  CHECK(open_checkpoint(scratch / "some").find(module + ".bias"));
  tensors[4] = halves(module + ".bias", {3}, {0, 0, 0});
  write(scratch / "zeros", config, tensors);
  const auto opened = open_checkpoint(scratch / "zeros");
  CHECK_FALSE(opened.find(module + ".bias"));
  CHECK(opened.notes.back().find("1 biases of zeros") != std::string::npos);
}

TEST_CASE("GPTQ: rules of modules", "[gptq]") {
  auto config = gptq_config();
  quantization(config)["group_size"] = 16;
  quantization(config)["dynamic"] = {{"-:lm_head", ordered_json::object()},
                                     {R"(+:.*\.a$)", {{"bits", 4}, {"group_size", 8}}}};
  CHECK(opened_values(config, gptq_tensors()) == gptq_values());
  quantization(config)["dynamic"][R"(+:.*\.a$)"]["bits"] = 3;
  const Scratch scratch;
  write(scratch / "m", config, gptq_tensors());
  check_error(ErrorCode::kUnsupported, {"dynamic", "3 bits"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("GPTQ: the configuration may lie beside config.json", "[gptq]") {
  const auto config = gptq_config();
  for (const char* name : {"quantize_config.json", "quantization_config.json"}) {
    const Scratch scratch;
    write(scratch / "m", {{"model_type", "foo"}}, gptq_tensors());
    check_error(ErrorCode::kUnsupported, {"a.qweight", "quantize_config.json"},
                [&] { open_checkpoint(scratch / "m"); });
    check_error(ErrorCode::kUnsupported, {"a.qweight", "directory"},
                [&] { open_checkpoint(scratch / "m" / "model.safetensors"); });
    write_text(scratch / "m" / name, config["quantization_config"].dump());
    const auto opened = open_checkpoint(scratch / "m");
    CHECK(values_of(opened, "a.weight") == gptq_values());
    CHECK(opened.side_files.empty());
  }
}

// 8 inputs in one group, 8 outputs: output n has the zero point n, and codes n for even inputs, 15 - n for odd ones.
std::vector<TestTensor> awq_tensors() {
  std::vector<std::uint32_t> codes;
  for (int i = 0; i < 4; ++i) codes.insert(codes.end(), {0x75316420, 0x8ace9bdf});
  return {int32s("a.qweight", {8, 1}, codes), int32s("a.qzeros", {1, 1}, {0x75316420}),
          halves("a.scales", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 0.5F})};
}

std::vector<float> awq_values() {
  std::vector<float> out;
  for (int n = 0; n < 8; ++n) {
    const float scale = n == 7 ? 0.5F : 1.0F;
    for (int k = 0; k < 8; ++k) out.push_back(k % 2 == 0 ? 0 : static_cast<float>(15 - 2 * n) * scale);
  }
  return out;
}

TEST_CASE("AWQ: the order of outputs in a word", "[gptq]") {
  CHECK(files::from_awq(0x75316420u) == 0x76543210u);
  CHECK(files::to_awq(0x76543210u) == 0x75316420u);
  ordered_json config{
      {"model_type", "foo"},
      {"quantization_config",
       {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 8}, {"zero_point", true}, {"version", "gemm"}}}};
  CHECK(opened_values(config, awq_tensors()) == awq_values());
  const Scratch scratch;
  write(scratch / "m", {{"model_type", "foo"}}, awq_tensors());
  write_text(scratch / "m" / "quant_config.json",
             R"({"zero_point": true, "q_group_size": 8, "w_bit": 4, "version": "GEMM"})");
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.kind == "AWQ");
  CHECK(values_of(opened, "a.weight") == awq_values());
  for (const char* version : {"gemv", "marlin", "exllama", "gemv_fast"}) {
    quantization(config)["version"] = version;
    write(scratch / "other", config, awq_tensors());
    check_error(ErrorCode::kUnsupported, {"version", version}, [&] { open_checkpoint(scratch / "other"); });
  }
}

TEST_CASE("AutoRound: the packing format says which", "[gptq]") {
  ordered_json config = gptq_config();
  quantization(config).erase("checkpoint_format");
  auto second = gptq_tensors();
  second[1] = int32s("a.qzeros", {2, 1}, {0xccccc418, 0xcccccf32});
  for (const char* method : {"auto-round", "intel/auto-round"}) {
    quantization(config)["quant_method"] = method;
    quantization(config)["packing_format"] = "auto_round:auto_gptq";
    CHECK(opened_values(config, gptq_tensors()) == gptq_values());
    for (const char* format : {"auto_round", "auto_round:gptqmodel"}) {
      quantization(config)["packing_format"] = format;
      CHECK(opened_values(config, second) == gptq_values());
    }
    quantization(config)["packing_format"] = "auto_round:auto_awq";
    CHECK(opened_values(config, awq_tensors()) == awq_values());
  }
  quantization(config)["packing_format"] = "auto_round:auto_gptq";
  quantization(config)["group_size"] = 128;
  quantization(config)["extra_config"] = {{"a", {{"bits", 4}, {"group_size", 8}}}, {"n", {{"bits", 16}}}};
  CHECK(opened_values(config, gptq_tensors()) == gptq_values());
  quantization(config)["packing_format"] = "auto_round:nv_fp4";
  const Scratch scratch;
  write(scratch / "m", config, gptq_tensors());
  check_error(ErrorCode::kUnsupported, {"packing_format", "nv_fp4"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("GPTQ, AWQ, AutoRound: their own files, bit for bit", "[gptq]") {
  check_peer("gptq-sym-g64", "GPTQ");
  check_peer("gptq-asym-g64", "GPTQ");
  check_peer("awq-g64", "AWQ");
}

TEST_CASE("GPTQ: settings that would be read wrongly are refused by name", "[gptq][hostile]") {
  using enum ErrorCode;
  struct Case {
    const char* key;
    ordered_json value;
    ErrorCode code;
    const char* part;
  };
  const std::vector<Case> cases = {{"bits", 2, kUnsupported, "2 bits"},
                                   {"bits", 3, kUnsupported, "3 bits"},
                                   {"bits", 16, kCorrupt, "fit no bits"},
                                   {"bits", "4", kCorrupt, "bits"},
                                   {"bits", 0, kCorrupt, "bits"},
                                   {"bits", 8, kCorrupt, "a.weight"},
                                   {"group_size", 0, kCorrupt, "group_size"},
                                   {"group_size", -2, kCorrupt, "group_size"},
                                   {"group_size", 4, kCorrupt, "a.weight"},
                                   {"group_size", 16, kCorrupt, "fit no bits and group_size"},
                                   {"group_size", 9223372036854775807, kCorrupt, "group_size"},
                                   {"group_size", nullptr, kCorrupt, "group_size"},
                                   {"checkpoint_format", "marlin", kUnsupported, "marlin"},
                                   {"checkpoint_format", "bitblas", kUnsupported, "bitblas"},
                                   {"is_marlin_format", true, kUnsupported, "is_marlin_format"},
                                   {"pack_dtype", "int16", kUnsupported, "int16"},
                                   {"adapter", {{"rank", 32}}, kUnsupported, "adapter"},
                                   {"act_bits", 8, kUnsupported, "act_bits"},
                                   {"data_type", "mx_fp", kUnsupported, "mx_fp"},
                                   {"dynamic", 3, kCorrupt, "dynamic"},
                                   {"quant_method", "gptq_p", kUnsupported, "gptq_p"}};
  for (const Case& hostile : cases) {
    INFO(hostile.key << " = " << hostile.value.dump());
    const Scratch scratch;
    auto config = gptq_config();
    quantization(config)[hostile.key] = hostile.value;
    write(scratch / "m", config, gptq_tensors());
    check_error(hostile.code, {hostile.part}, [&] { open_checkpoint(scratch / "m"); });
  }
}

TEST_CASE("GPTQ: parts that disagree are refused by name", "[gptq][hostile]") {
  const std::vector<std::pair<std::size_t, TestTensor>> cases = {
      {0, int32s("a.qweight", {3, 2}, {1, 2, 3, 4, 5, 6})},
      {0, int32s("a.qweight", {6}, {1, 2, 3, 4, 5, 6})},
      {0, int32s("a.qweight", {0, 3}, {})},
      {0, int32s("a.qweight", {1099511627776, 0}, {})},
      {0, {"a.qweight", "I64", {2, 3}, std::string(48, 'x')}},
      {1, int32s("a.qzeros", {2, 2}, {1, 2, 3, 4})},
      {1, int32s("a.qzeros", {1, 1}, {1})},
      {1, {"a.qzeros", "F32", {2, 1}, std::string(8, 'x')}},
      {1, int32s("b.qzeros", {2, 1}, {1, 2})},
      {2, halves("a.scales", {3, 2}, {1, 1, 1, 1, 1, 1})},
      {2, halves("a.scales", {2, 4}, {1, 1, 1, 1, 1, 1, 1, 1})},
      {2, halves("a.scales", {0, 3}, {})},
      {3, int32s("a.g_idx", {8}, std::vector<std::uint32_t>(8, 0))},
      {3, int32s("a.g_idx", {17}, std::vector<std::uint32_t>(17, 0))},
      {3, int32s("a.g_idx", {4, 4}, std::vector<std::uint32_t>(16, 0))},
      {3, int32s("a.g_idx", {0}, {})},
  };
  for (const auto& [index, part] : cases) {
    INFO(part.name << " " << part.dtype << " of " << part.bytes.size() << " bytes");
    const Scratch scratch;
    auto tensors = gptq_tensors();
    tensors[index] = part;
    write(scratch / "m", gptq_config(), tensors);
    check_error(ErrorCode::kCorrupt, {"a.weight"}, [&] { open_checkpoint(scratch / "m"); });
  }
}
