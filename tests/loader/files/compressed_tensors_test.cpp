#include "loader/files/compressed_tensors.h"

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

}  // namespace

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
      {"/quantization_config/format", {"", "nvfp4-pack-quantized", kUnsupported, {"format", "nvfp4-pack-quantized"}}},
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
      {group + "/weights/actorder", {"", "group", kUnsupported, {"group_0", "actorder"}}},
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
  check_error(ErrorCode::kUnsupported, {"a.weight_g_idx"}, [&] { open_checkpoint(scratch / "order"); });
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
