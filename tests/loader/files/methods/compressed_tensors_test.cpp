#include "loader/files/methods/compressed_tensors.h"

#include "loader/files/tensor_reader.h"
#include "loader/files/verify.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

// transformers' and compressed-tensors' spelling of packed_tensors().
nlohmann::json foreign_config() {
  return {{"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"quantization_status", "compressed"},
            {"kv_cache_scheme", nullptr},
            {"sparsity_config", nlohmann::json::object()},
            {"config_groups",
             {{"group_0",
               {{"targets", {"Linear"}},
                {"input_activations", nullptr},
                {"weights",
                 {{"num_bits", 4},
                  {"type", "int"},
                  {"symmetric", true},
                  {"strategy", "group"},
                  {"group_size", 16},
                  {"dynamic", false}}}}}}}}}};
}

void write_foreign(const fs::path& directory, const nlohmann::json& config,
                   const std::vector<TestTensor>& tensors = packed_tensors()) {
  write_checkpoint(directory, tensors, ordered_json(config));
}

// Every second column is of the second group, save for the first ones as given.
TestTensor order(const std::vector<std::int32_t>& first) {
  std::vector<std::int32_t> groups;
  for (int k = 0; k < 32; ++k) groups.push_back(k % 2);
  std::ranges::copy(first, groups.begin());
  return {"a.weight_g_idx", "I32", {32}, std::string(reinterpret_cast<const char*>(groups.data()), groups.size() * 4)};
}

std::vector<float> values_of(const fs::path& directory) {
  const auto opened = open_checkpoint(directory);
  files::TensorReader reader(opened, *opened.manifest.find("a.weight"));
  std::vector<float> out(static_cast<std::size_t>(reader.size()));
  reader.read(0, out);
  return out;
}

}  // namespace

TEST_CASE("compressed-tensors: columns in an order of their own stay packed", "[foreign]") {
  const Scratch scratch;
  auto config = foreign_config();
  config["/quantization_config/config_groups/group_0/weights/actorder"_json_pointer] = "group";
  auto tensors = packed_tensors();
  write_foreign(scratch / "plain", config, tensors);
  const std::vector<float> plain = values_of(scratch / "plain");
  tensors.push_back(order({}));
  write_foreign(scratch / "m", config, tensors);
  const std::vector<float> values = values_of(scratch / "m");
  for (std::size_t k = 0; k < 32; ++k) {
    const float code = static_cast<float>(k % 16) - 8;
    CHECK(values[k] == code * (k % 2 == 0 ? 1.0F : 0.5F));
    CHECK(values[32 + k] == 0.0F);
  }
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.is_quantized());
  CHECK(opened.manifest.find("a.weight")->parts.has(files::Part::kColumnOrder));
  CHECK(files::verify(opened).findings.empty());
  CHECK(opened.notes.back().find("g_idx") != std::string::npos);
  tensors.back() = order({-1});  // never filled in
  write_foreign(scratch / "unset", config, tensors);
  CHECK(values_of(scratch / "unset") == plain);
  CHECK(open_checkpoint(scratch / "unset").is_quantized());
}

TEST_CASE("compressed-tensors: 8 bits with zero points are read as their values", "[foreign]") {
  const Scratch scratch;
  auto config = foreign_config();
  auto& weights = config["quantization_config"]["config_groups"]["group_0"]["weights"];
  weights["num_bits"] = 8, weights["symmetric"] = false, weights["group_size"] = 2;
  const std::int64_t shape[] = {1, 4};
  write_foreign(scratch / "m", config,
                {{"a.weight_packed", "I32", {1, 1}, std::string("\x00\xff\x80\x81", 4)},
                 {"a.weight_scale", "F16", {1, 2}, floats({1, 2}, Dtype::kFloat16)},
                 {"a.weight_zero_point", "I32", {1, 2}, std::string("\x01\0\0\0\x80\0\0\0", 8)},
                 {"a.weight_shape", "I64", {2}, std::string(reinterpret_cast<const char*>(shape), sizeof shape)}});
  CHECK(values_of(scratch / "m") == std::vector<float>{-1, 254, 0, 2});
}

TEST_CASE("compressed-tensors: mixed-precision is read where every group is packed", "[foreign]") {
  const Scratch scratch;
  auto config = foreign_config();
  config["quantization_config"]["format"] = "mixed-precision";
  write_foreign(scratch / "m", config);
  check_error(ErrorCode::kCorrupt, {"group_0", "format"}, [&] { open_checkpoint(scratch / "m"); });
  config["quantization_config"]["config_groups"]["group_0"]["format"] = "pack-quantized";
  write_foreign(scratch / "m", config);
  CHECK(open_checkpoint(scratch / "m").is_quantized());
  config["quantization_config"]["config_groups"]["group_0"]["format"] = "int-quantized";
  write_foreign(scratch / "m", config);
  check_error(ErrorCode::kUnsupported, {"int-quantized"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("compressed-tensors: packed tensors become records", "[foreign]") {
  const Scratch scratch;
  write_foreign(scratch / "m", foreign_config());
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.manifest.is_derived);
  CHECK(opened.is_quantized());
  REQUIRE(opened.manifest.tensors.size() == 2);
  const auto& record = opened.manifest.tensors[0];
  CHECK(record.name == "a.weight");
  CHECK(record.scheme == &scheme(SchemeId::kSymInt4));
  CHECK(record.group_size == 16);
  CHECK(record.shape == std::vector<std::int64_t>{2, 32});
  CHECK_FALSE(record.original_dtype);
  CHECK(files::verify(opened).findings.empty());
}

TEST_CASE("compressed-tensors: settings that would be read wrongly are refused by name", "[foreign][hostile]") {
  struct Case {
    const char* pointer;
    nlohmann::json value;
    ErrorCode code;
    std::vector<std::string> parts;
  };
  const std::string group = "/quantization_config/config_groups/group_0";
  using enum ErrorCode;
  const std::vector<std::pair<std::string, Case>> cases = {
      {"/quantization_config/format", {"", "float-quantized", kUnsupported, {"format", "float-quantized"}}},
      {"/quantization_config/quantization_status", {"", "frozen", kUnsupported, {"quantization_status", "frozen"}}},
      {"/quantization_config/kv_cache_scheme", {"", {{"num_bits", 8}}, kUnsupported, {"kv_cache_scheme"}}},
      {"/quantization_config/transform_config", {"", {{"a", 1}}, kUnsupported, {"transform_config"}}},
      {"/quantization_config/config_groups", {"", nlohmann::json::array(), kCorrupt, {"config_groups"}}},
      {group + "/input_activations", {"", {{"num_bits", 8}}, kUnsupported, {"group_0", "input_activations"}}},
      {group + "/weights/symmetric", {"", false, kCorrupt, {"a.weight_zero_point", "missing"}}},
      {group + "/weights/num_bits", {"", 3, kUnsupported, {"group_0", "3 bits"}}},
      {group + "/weights/num_bits", {"", 8, kCorrupt, {"a.weight", "fit no group"}}},
      {group + "/weights/group_size", {"", 32, kCorrupt, {"a.weight", "fit no group"}}},
      {group + "/weights/group_size", {"", 0, kCorrupt, {"group_0", "group_size"}}},
      {group + "/weights/type", {"", "float", kUnsupported, {"group_0", "float"}}},
      {group + "/weights/strategy", {"", "block", kUnsupported, {"group_0", "block"}}},
      {group + "/weights/actorder", {"", "sideways", kUnsupported, {"group_0", "actorder"}}},
      {group + "/weights/dynamic", {"", true, kUnsupported, {"group_0", "dynamic"}}},
  };
  for (const auto& [pointer, hostile] : cases) {
    INFO(pointer << " = " << hostile.value.dump());
    const Scratch scratch;
    auto config = foreign_config();
    config[nlohmann::json::json_pointer(pointer)] = hostile.value;
    write_foreign(scratch / "m", config);
    check_error(hostile.code, hostile.parts, [&] { open_checkpoint(scratch / "m"); });
  }
}

TEST_CASE("compressed-tensors: parts that would be read wrongly are refused by name", "[foreign][hostile]") {
  const Scratch scratch;
  auto tensors = packed_tensors();
  tensors.push_back({"a.weight_zero_point", "I32", {1}, "1234"});
  write_foreign(scratch / "zero", foreign_config(), tensors);
  check_error(ErrorCode::kUnsupported, {"a.weight_zero_point", "zero points"},
              [&] { open_checkpoint(scratch / "zero"); });
  tensors.back() = {"a.weight_g_idx", "I32", {1}, "1234"};
  write_foreign(scratch / "order", foreign_config(), tensors);
  check_error(ErrorCode::kCorrupt, {"a.weight_g_idx"}, [&] { open_checkpoint(scratch / "order"); });
  for (const int group : {2, -2, 1}) {  // 1: sizes 15 and 17
    tensors.back() = order({group});
    write_foreign(scratch / "groups", foreign_config(), tensors);
    check_error(ErrorCode::kCorrupt, {"a.weight_g_idx"}, [&] { open_checkpoint(scratch / "groups"); });
  }
  tensors = packed_tensors();
  tensors.erase(tensors.begin() + 1);
  write_foreign(scratch / "scale", foreign_config(), tensors);
  check_error(ErrorCode::kCorrupt, {"\"a.weight\"", "a.weight_scale"}, [&] { open_checkpoint(scratch / "scale"); });
  tensors = packed_tensors();
  tensors[2].bytes[8] = 31;  // in_features
  write_foreign(scratch / "shape", foreign_config(), tensors);
  check_error(ErrorCode::kCorrupt, {"\"a.weight\"", "[2, 31]"}, [&] { open_checkpoint(scratch / "shape"); });
  tensors[2].bytes[15] = '\x80';
  write_foreign(scratch / "negative", foreign_config(), tensors);
  check_error(ErrorCode::kCorrupt, {"\"a.weight\""}, [&] { open_checkpoint(scratch / "negative"); });
}

TEST_CASE("compressed-tensors: a checkpoint of AutoRound equals its own dequantisation", "[foreign]") {
  const fs::path peer = shared_data() / "fixtures/peers/ct-g64";
  if (!fs::exists(peer)) HALFBYTE_SKIP(peer.string() + " is not here");
  const auto opened = open_checkpoint(peer);
  CHECK(files::verify(opened).findings.empty());
  const auto expected = open_checkpoint(peer / "expected.safetensors");
  for (const auto& wanted : expected.manifest.tensors) {
    const auto* record = opened.manifest.find(wanted.name);
    REQUIRE(record);
    CHECK(record->group_size == 64);
    files::TensorReader left(opened, *record);
    files::TensorReader right(expected, wanted);
    REQUIRE(left.size() == right.size());
    std::vector<float> a(static_cast<std::size_t>(left.size()));
    std::vector<float> b(a.size());
    left.read(0, a);
    right.read(0, b);
    CHECK(a == b);
  }
}
