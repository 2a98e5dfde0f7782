#include "loader/files/manifest.h"
#include "loader/files/packed_parts.h"

#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::Manifest;

namespace {

const std::string kHash = "0123456789abcdef0123456789abcdef";

Manifest example() {
  Manifest out;
  out.created_by = "halfbyte test";
  out.source_kind = "safetensors";
  out.source_files = {{"model.safetensors", 1234, kHash}, {"other.safetensors", 5, ""}};
  out.declared_dtype = Dtype::kFloat16;
  files::TensorRecord packed;
  packed.name = "a.weight";
  packed.shape = {2, 64};
  packed.original_dtype = Dtype::kBfloat16;
  packed.scheme = &scheme(SchemeId::kSymInt4);
  packed.scale_dtype = Dtype::kBfloat16;
  packed.group_size = 32;
  packed.parts = files::packed_part_names(packed);
  packed.size_bytes = 88;
  packed.xxh3_128 = kHash;
  packed.error = files::RecordedError{0.1, 1.0 / 3.0};
  files::TensorRecord other = packed;
  other.name = "b.weight";
  other.parts = files::packed_part_names(other);
  other.group_size = 16;
  other.scale_dtype = Dtype::kFloat16;
  other.error.reset();
  files::TensorRecord buffer;
  buffer.name = "inv \"freq\"\n";
  buffer.is_buffer = true;
  buffer.shape = {};
  buffer.stored_dtype = Dtype::kFloat32;
  buffer.parts[files::Part::kCodes] = buffer.name;
  buffer.size_bytes = 4;
  out.tensors = {packed, other, buffer};
  out.buffers = {
      {"rotary.inv_freq", Dtype::kFloat16, "rope", models::HeldJson(nlohmann::json{{"rope_theta", 10000.5}})}};
  out.ties = {{"head.weight", "a.weight"}};
  out.kept = {{"inv \"freq\"\n", "a buffer"}};
  out.recommended_dtype = "half";
  out.keep_float32 = {"*.router.*"};
  out.files = {{"config.json", 10, 10, kHash}};
  return out;
}

struct Case {
  const char* what;
  const char* pointer;  // of the field to change
  nlohmann::json value;
  ErrorCode code;
  std::vector<std::string> parts;
};

}  // namespace

TEST_CASE("manifest: what is written is read back", "[manifest]") {
  const std::string text = files::manifest_to_json(example());
  const Manifest read = files::parse_manifest(text, "halfbyte.json");
  CHECK(files::manifest_to_json(read) == text);
  REQUIRE(read.find("b.weight"));
  CHECK(read.find("b.weight")->group_size == 16);
  CHECK((read.find("b.weight")->scale_dtype == Dtype::kFloat16));
  CHECK(read.find("a.weight")->error->max_abs == 1.0 / 3.0);  // all digits of it
  CHECK(read.find("a.weight")->scheme == &scheme(SchemeId::kSymInt4));
  CHECK_FALSE(read.find("a.weight2"));
  CHECK(read.buffers.at(0).inputs->at("rope_theta") == 10000.5);
  CHECK(read.files.at(0).name == "config.json");
  CHECK_FALSE(read.is_derived);
}

TEST_CASE("manifest: what is read can be written, and is read again", "[manifest]") {
  Manifest manifest = example();
  manifest.files[0].xxh3_128.clear();
  manifest.source_files[0].xxh3_128.clear();
  manifest.tensors[0].xxh3_128.clear();
  manifest.tensors[0].original_dtype.reset();
  manifest.declared_dtype.reset();
  const std::string text = files::manifest_to_json(manifest);
  CHECK(files::manifest_to_json(files::parse_manifest(text, "halfbyte.json")) == text);
  for (const char* large : {"1e39", "-1e300", "1e308"}) {
    nlohmann::json json = nlohmann::json::parse(files::manifest_to_json(example()));
    json["tensors"]["a.weight"]["nested_offset"] = nlohmann::json::parse(large);
    check_error(ErrorCode::kCorrupt, {"tensors.a.weight.nested_offset", "float32"},
                [&] { files::parse_manifest(json.dump(), "halfbyte.json"); });
  }
}

TEST_CASE("manifest: keys stand in the order that docs/format.md gives", "[manifest]") {
  const std::string text = files::manifest_to_json(example());
  std::size_t last = 0;
  for (const char* key : {"format", "format_version", "created_by", "source", "schemes", "tensors", "buffers", "ties",
                          "kept", "dtype", "files", "xxh3_128"}) {
    INFO(key);
    const std::size_t at = text.find("\n \"" + std::string(key) + "\": ");
    CHECK(at != std::string::npos);
    CHECK(at > last);
    last = at;
  }
}

TEST_CASE("manifest: an empty one is legal", "[manifest]") {
  Manifest empty;
  empty.source_kind = "safetensors";
  CHECK(files::parse_manifest(files::manifest_to_json(empty), "m").tensors.empty());
}

TEST_CASE("manifest: its own hash finds every flipped bit", "[manifest]") {
  std::string text = files::manifest_to_json(example());
  CHECK(files::manifest_hash_matches(text));
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      if (files::manifest_hash_matches(text)) FAIL("byte " << i << ", bit " << bit);
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  }
  CHECK_FALSE(files::manifest_hash_matches(""));
  CHECK_FALSE(files::manifest_hash_matches(text.substr(1)));
}

TEST_CASE("manifest: unknown keys are ignored", "[manifest]") {
  auto json = nlohmann::json::parse(files::manifest_to_json(example()));
  json["new"] = {1, 2};
  json["tensors"]["a.weight"]["new"] = "x";
  CHECK(files::parse_manifest(json.dump(), "m").tensors.size() == 3);
}

TEST_CASE("manifest: a newer minor version is read", "[manifest]") {
  auto json = nlohmann::json::parse(files::manifest_to_json(example()));
  CHECK(files::parse_manifest(json.dump(), "m").format_minor == 0);
  json["format_minor"] = 7;
  CHECK(files::parse_manifest(json.dump(), "m").format_minor == 7);
}

TEST_CASE("manifest: offsets are said of the scheme and of the tensor", "[manifest]") {
  Manifest manifest = example();
  manifest.tensors[0].scheme = &scheme(SchemeId::kAffineInt4);
  manifest.tensors[0].parts = files::packed_part_names(manifest.tensors[0]);
  const std::string text = files::manifest_to_json(manifest);
  CHECK(files::manifest_to_json(files::parse_manifest(text, "m")) == text);
  auto json = nlohmann::json::parse(text);
  CHECK(json["schemes"]["affine_int4"]["offset"] == true);
  CHECK(json["tensors"]["a.weight"]["parts"]["offset"] == "a.weight_offset");
  json["schemes"]["affine_int4"].erase("offset");
  check_error(ErrorCode::kCorrupt, {"affine_int4", "offset"}, [&] { files::parse_manifest(json.dump(), "m"); });
  json = nlohmann::json::parse(text);
  json["tensors"]["a.weight"]["parts"].erase("offset");
  check_error(ErrorCode::kCorrupt, {"a.weight", "offset"}, [&] { files::parse_manifest(json.dump(), "m"); });
}

TEST_CASE("manifest: hostile values are refused by name", "[manifest][hostile]") {
  using enum ErrorCode;
  const std::vector<Case> cases = {
      {"other format", "/format", "fullbyte", kCorrupt, {"format"}},
      {"newer version", "/format_version", 2, kUnsupported, {"format_version", "2"}},
      {"fractional version", "/format_version", 1.5, kCorrupt, {"format_version"}},
      {"negative minor", "/format_minor", -1, kCorrupt, {"format_minor"}},
      {"unknown scheme",
       "/schemes/int3",
       {{"bits", 3}, {"group_size", 64}, {"zero_point", false}, {"scale_dtype", "float16"}},
       kUnsupported,
       {"int3"}},
      {"wrong bits", "/schemes/sym_int4/bits", 8, kCorrupt, {"sym_int4", "bits"}},
      {"zero points", "/schemes/sym_int4/zero_point", true, kCorrupt, {"zero_point"}},
      {"offsets", "/schemes/sym_int4/offset", true, kCorrupt, {"sym_int4", "offset"}},
      {"an offset", "/tensors/a.weight/parts/offset", "a.weight_offset", kCorrupt, {"a.weight", "no \"offset\""}},
      {"group size 0", "/schemes/sym_int4/group_size", 0, kCorrupt, {"group_size"}},
      {"scale dtype int8", "/schemes/sym_int4/scale_dtype", "int8", kCorrupt, {"scale_dtype"}},
      {"unknown dtype", "/tensors/a.weight/original_dtype", "float17", kUnsupported, {"a.weight", "float17"}},
      {"unknown stored", "/tensors/a.weight/stored", "int3", kUnsupported, {"a.weight", "int3"}},
      {"scheme that is not described", "/tensors/a.weight/stored", "sym_int8", kCorrupt, {"a.weight"}},
      {"shape negative", "/tensors/a.weight/shape", {2, -64}, kCorrupt, {"a.weight", "shape[1]", "-64"}},
      {"shape huge", "/tensors/a.weight/shape", {std::uint64_t{1} << 63}, kCorrupt, {"a.weight", "shape[0]"}},
      {"shape a string", "/tensors/a.weight/shape", "2x64", kCorrupt, {"a.weight", "shape"}},
      {"kind", "/tensors/a.weight/kind", "weight", kCorrupt, {"a.weight", "kind"}},
      {"group size negative", "/tensors/b.weight/group_size", -16, kCorrupt, {"b.weight", "group_size"}},
      {"bytes negative", "/tensors/a.weight/bytes", -1, kCorrupt, {"a.weight", "bytes"}},
      {"parts missing", "/tensors/a.weight/parts", nullptr, kCorrupt, {"a.weight", "parts"}},
      {"no scale", "/tensors/a.weight/parts", {{"codes", "a"}}, kCorrupt, {"a.weight", "scale"}},
      {"scale of a dense one", "/tensors/a.weight/stored", "float32", kCorrupt, {"a.weight", "scale"}},
      {"hash too short", "/tensors/a.weight/xxh3_128", "abc", kCorrupt, {"a.weight", "xxh3_128"}},
      {"hash in capitals", "/tensors/a.weight/xxh3_128", std::string(32, 'A'), kCorrupt, {"a.weight"}},
      {"error negative", "/tensors/a.weight/error/rel_rmse", -0.5, kCorrupt, {"a.weight", "error"}},
      {"tie of three", "/ties/0", {"a", "b", "c"}, kCorrupt, {"ties[0]"}},
      {"file outside", "/files/0/name", "../config.json", kCorrupt, {"files[0].name"}},
      {"file absolute", "/files/0/name", "/etc/passwd", kCorrupt, {"files[0].name"}},
      {"more hashed than there is", "/files/0/hashed_bytes", 11, kCorrupt, {"files[0].hashed_bytes"}},
      {"tensors a list", "/tensors", nlohmann::json::array(), kCorrupt, {"tensors"}},
  };
  const auto sound = nlohmann::json::parse(files::manifest_to_json(example()));
  for (const Case& hostile : cases) {
    INFO(hostile.what);
    auto json = sound;
    json[nlohmann::json::json_pointer(hostile.pointer)] = hostile.value;
    auto parts = hostile.parts;
    parts.push_back("halfbyte.json");
    check_error(hostile.code, parts, [&] { files::parse_manifest(json.dump(), "halfbyte.json"); });
  }
}

TEST_CASE("manifest: hostile texts are refused", "[manifest][hostile]") {
  const std::vector<std::string> texts = {
      "",
      "null",
      "[]",
      "{",
      "{}",
      R"({"format":"halfbyte","format":"halfbyte"})",
      std::string(100'000, '['),
      R"({"format":"halfbyte","format_version":1,"x":)" + std::string(200, '[') + std::string(200, ']') + "}",
      std::string("{}\0", 3)};
  for (const std::string& text : texts) {
    INFO(text.substr(0, 60));
    check_error(ErrorCode::kCorrupt, {"halfbyte.json"}, [&] { files::parse_manifest(text, "halfbyte.json"); });
  }
}

TEST_CASE("patterns match names", "[manifest]") {
  struct Row {
    const char* pattern;
    const char* name;
    bool matches;
  };
  const std::vector<Row> rows = {
      {"lm_head", "lm_head.weight", true},
      {"lm_head.weight", "lm_head.weight", true},
      {"head", "lm_head.weight", false},
      {"layers.1", "model.layers.1.mlp.up_proj.weight", true},
      {"layers.1", "model.layers.10.mlp.up_proj.weight", false},
      {"weight", "a.weight", true},
      {"a.weight.b", "a.weight", false},
      {"*down_proj*", "model.layers.0.mlp.down_proj.weight", true},
      {"*.mlp.*", "model.layers.0.mlp.down_proj.weight", true},
      {"*.mlp", "model.layers.0.mlp.down_proj.weight", false},
      {"model.layers.?.*", "model.layers.7.x", true},
      {"model.layers.?.*", "model.layers.77.x", false},
      {"*", "", true},
      {"", "a", false},
      {"**a**", "bab", true},
      {"a*b*c", "aXbXbXc", true},
      {"a*b*c", "aXbXbX", false},
  };
  for (const Row& row : rows) {
    INFO(row.pattern << " on " << row.name);
    CHECK(files::matches_pattern(row.pattern, row.name) == row.matches);
  }
}
