// A quantised source keeps its codes, or is quantised again when that is asked for.
#include <halfbyte/convert.h>

#include "convert/export/checkpoint.h"
#include "convert/gguf/export.h"
#include "loader/files/checkpoint.h"
#include "loader/files/verify.h"
#include "tests/loader/files/methods/bitsandbytes_source.h"
#include "tests/loader/files/methods/peer.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

void write_source(const fs::path& directory) {
  write_text(directory / "model.safetensors",
             safetensors({float_tensor("a.weight", {16, 128}), float_tensor("b.weight", {8, 64}),
                          float_tensor("norm.weight", {64})}));
  write_text(directory / "config.json", R"({"model_type": "foo"})");
  write_text(directory / "quantize_config.json", "{}");
}

std::vector<std::byte> bytes_of(const files::Checkpoint& checkpoint, const files::StoredTensor& tensor) {
  std::vector<std::byte> out(tensor.size_bytes);
  files::read_stored(checkpoint, tensor, 0, out);
  return out;
}

}  // namespace

TEST_CASE("repack: the same bytes, on record again", "[repack]") {
  for (const char* scheme : {"sym_int4", "asym_int4", "nf4"}) {
    INFO(scheme);
    const Scratch scratch;
    write_source(scratch / "source");
    convert::quantize(scratch / "source", scratch / "once", {.scheme = scheme});
    const auto summary = convert::repack(scratch / "once", scratch / "twice");
    CHECK(summary.quantized_tensors == 2);
    CHECK(summary.kept_tensors == 1);
    for (const char* name : {"model.safetensors", "config.json"})
      CHECK(read_text(scratch / "once" / name) == read_text(scratch / "twice" / name));
    const files::Checkpoint opened = files::open_checkpoint(scratch / "twice");
    CHECK_FALSE(opened.manifest.is_derived);
    CHECK(opened.manifest.find("a.weight")->original_dtype == Dtype::kBfloat16);
    CHECK_FALSE(opened.manifest.find("a.weight")->xxh3_128.empty());
    CHECK_FALSE(fs::exists(scratch / "twice" / "quantize_config.json"));
  }
}

TEST_CASE("repack: GPTQ's and AWQ's codes are kept, their configuration is not", "[repack]") {
  for (const char* peer : {"gptq-sym-g64", "gptq-asym-g64", "awq-g64"}) {
    const fs::path source = shared_data() / "fixtures" / "peers" / peer;
    if (!fs::exists(source)) HALFBYTE_SKIP(source.string() + " is not here");
    INFO(peer);
    const Scratch scratch;
    convert::repack(source, scratch / "m");
    const files::Checkpoint before = files::open_checkpoint(source), after = files::open_checkpoint(scratch / "m");
    CHECK((*after.config)["quantization_config"]["quant_method"] == "compressed-tensors");
    CHECK_FALSE(fs::exists(scratch / "m" / "quantization_config.json"));
    for (const files::TensorRecord& record : before.manifest.tensors) {
      INFO(record.name);
      REQUIRE(after.manifest.find(record.name));
      CHECK(after.manifest.find(record.name)->scheme == record.scheme);
      CHECK(values_of(after, record.name) == values_of(before, record.name));
    }
    convert::dequantize(source, scratch / "plain");
    CHECK(read_text(scratch / "plain" / "config.json").find("quantization_config") == std::string::npos);
    CHECK_FALSE(fs::exists(scratch / "plain" / "quantization_config.json"));
  }
}

TEST_CASE("repack: an order of columns is kept beside the codes", "[repack]") {
  const Scratch scratch;
  auto tensors = packed_tensors();
  std::vector<std::int32_t> groups;
  for (int k = 0; k < 32; ++k) groups.push_back(k / 3 % 2);
  groups[31] = 0, groups[30] = 0;  // 16 of each
  groups[0] = 1, groups[1] = 1;
  while (std::count(groups.begin(), groups.end(), 1) > 16) *std::find(groups.begin() + 2, groups.end(), 1) = 0;
  tensors.push_back({"a.weight_g_idx",
                     "I32",
                     {32},
                     std::string(reinterpret_cast<const char*>(groups.data()), groups.size() * sizeof groups[0])});
  const ordered_json weights{{"num_bits", 4}, {"symmetric", true}, {"strategy", "group"}, {"group_size", 16}};
  write_checkpoint(scratch / "source", tensors,
                   {{"model_type", "foo"},
                    {"quantization_config",
                     {{"quant_method", "compressed-tensors"},
                      {"format", "pack-quantized"},
                      {"config_groups", {{"group_0", {{"weights", weights}}}}}}}});
  const auto summary = convert::repack(scratch / "source", scratch / "m");
  CHECK(summary.quantized_tensors == 1);
  const files::Checkpoint source = files::open_checkpoint(scratch / "source"),
                          m = files::open_checkpoint(scratch / "m");
  CHECK_FALSE(m.manifest.is_derived);
  CHECK(m.manifest.find("a.weight")->parts.has(files::Part::kColumnOrder));
  CHECK((*m.config)["quantization_config"]["quant_method"] == "halfbyte");
  CHECK(values_of(m, "a.weight") == values_of(source, "a.weight"));
  CHECK(files::verify(m).findings.empty());
  convert::dequantize(scratch / "m", scratch / "plain");
  CHECK(values_of(files::open_checkpoint(scratch / "plain"), "a.weight") == values_of(source, "a.weight"));
  // An order that is none.
  const files::StoredTensor* order = m.find("a.weight_column_order");
  REQUIRE(order);
  std::string bytes = read_text(scratch / "m" / "model.safetensors");
  bytes[order->offset] = bytes[order->offset + 4];
  write_text(scratch / "m" / "model.safetensors", bytes);
  const files::Checkpoint broken = files::open_checkpoint(scratch / "m");
  check_error(ErrorCode::kCorrupt, {"a.weight_column_order", "twice"}, [&] { values_of(broken, "a.weight"); });
  CHECK_FALSE(files::verify(broken).findings.empty());
}

TEST_CASE("repack: shards as asked for, and refuses what is not quantised", "[repack]") {
  const Scratch scratch;
  write_source(scratch / "source");
  CHECK_THROWS_WITH(convert::repack(scratch / "source", scratch / "no"), Catch::Contains("nothing in it is quantised"));
  convert::quantize(scratch / "source", scratch / "once", {});
  convert::repack(scratch / "once", scratch / "shards", {.shard_size = 400});
  CHECK(files::open_checkpoint(scratch / "shards").data_files.size() > 1);
  CHECK_THROWS_AS(convert::repack(scratch / "once", scratch / "shards"), Error);
}

TEST_CASE("repack: bitsandbytes's tensors stay as they are", "[repack][bitsandbytes]") {
  for (const bool is_nested : {false, true}) {
    const Scratch scratch;
    const BitsandbytesWeight weight{"a.weight", {3, 256}, 128, "nf4", is_nested},
        across{"b.weight", {3, 80}, 64, "fp4"};
    std::vector<TestTensor> tensors = weight.tensors(), others = across.tensors();
    if (!is_nested) tensors.insert(tensors.end(), others.begin(), others.end());
    ordered_json config = bitsandbytes_config();
    config["quantization_config"]["llm_int8_threshold"] = 6.0;
    write_checkpoint(scratch / "source", tensors, config);
    convert::repack(scratch / "source", scratch / "own");
    const files::Checkpoint opened = files::open_checkpoint(scratch / "own");
    CHECK(opened.kind == "halfbyte");
    CHECK(opened.manifest.find("a.weight")->original_dtype == Dtype::kBfloat16);
    // bitsandbytes has no blocks of 16.
    CHECK((*opened.config)["quantization_config"]["quant_method"] == (is_nested ? "bitsandbytes" : "halfbyte"));
    CHECK_FALSE((*opened.config)["quantization_config"].contains("llm_int8_threshold"));
    for (const TestTensor& tensor : weight.tensors()) {
      INFO(tensor.name);
      REQUIRE(opened.find(tensor.name) != nullptr);
      const std::vector<std::byte> bytes = bytes_of(opened, *opened.find(tensor.name));
      CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == tensor.bytes);
    }
    if (!is_nested) {  // blocks of 64 across rows of 80
      CHECK(opened.manifest.find("b.weight")->group_size == 16);
      CHECK(bytes_of(opened, *opened.find("b.weight")).size() == 120);
    }
    convert::dequantize(scratch / "own", scratch / "plain");
    CHECK_FALSE(files::open_checkpoint(scratch / "plain").config->contains("quantization_config"));
  }
}

TEST_CASE("quantize: a quantised source is refused, or quantised again from its values", "[repack]") {
  const Scratch scratch;
  write_source(scratch / "source");
  convert::quantize(scratch / "source", scratch / "once", {.scheme = "sym_int8"});
  CHECK_THROWS_WITH(convert::quantize(scratch / "once", scratch / "again", {.scheme = "nf4"}),
                    Catch::Contains("quantised already"));
  convert::quantize(scratch / "once", scratch / "again", {.scheme = "nf4", .requantize = true});
  // The same as from the values written out.
  convert::dequantize(scratch / "once", scratch / "plain");
  convert::quantize(scratch / "plain", scratch / "wanted", {.scheme = "nf4"});
  const files::Checkpoint again = files::open_checkpoint(scratch / "again");
  const files::Checkpoint wanted = files::open_checkpoint(scratch / "wanted");
  REQUIRE(again.tensors.size() == wanted.tensors.size());  // in another order: what is translated comes last
  for (const files::StoredTensor& tensor : wanted.tensors) {
    INFO(tensor.name);
    REQUIRE(again.find(tensor.name) != nullptr);
    CHECK(bytes_of(again, *again.find(tensor.name)) == bytes_of(wanted, tensor));
  }
  CHECK(read_text(scratch / "again" / "config.json") == read_text(scratch / "wanted" / "config.json"));
}

TEST_CASE("a quantised source without config.json goes everywhere, or is refused by name", "[repack]") {
  const Scratch scratch;
  const fs::path source = scratch / "source";
  write_packed_checkpoint(source);
  fs::remove(source / "config.json");
  convert::quantize(source, scratch / "again", {.group_size = 16, .requantize = true});
  convert::repack(source, scratch / "repacked");
  convert::dequantize(source, scratch / "plain");
  for (const char* name : {"again", "repacked", "plain"}) {
    INFO(name);
    CHECK(files::verify(files::open_checkpoint(scratch / name)).findings.empty());
    CHECK_FALSE(fs::exists(scratch / name / "config.json"));
  }
  for (const std::string& format : convert::export_formats()) {
    INFO(format);
    CHECK_THROWS_AS(convert::export_checkpoint(source, scratch / "export", {.format = format, .requantize = true}),
                    Error);
  }
  CHECK_THROWS_AS(convert::export_gguf(source, scratch / "export.gguf", {.requantize = true}), Error);
}
