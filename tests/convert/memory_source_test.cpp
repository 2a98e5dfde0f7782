// Tensors in memory become what the same tensors in a directory become.
#include <halfbyte/memory_source.h>

#include <map>
#include <set>

#include "loader/files/verify.h"
#include "tests/convert/memory_sources.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::MemorySource;
using convert::quantize;
using convert::QuantizeOptions;
using files::Checkpoint;
using files::open_checkpoint;

namespace {

// All files' bytes but those of the record.
std::map<std::string, std::string> files_in(const fs::path& directory) {
  const auto contents = contents_of(directory);
  std::map<std::string, std::string> out(contents.begin(), contents.end());
  out.erase("halfbyte.json");
  return out;
}

// What the record says of tensors and files. Tensors in memory do not say what was lost when their codes were made, nor
// why the others were kept.
ordered_json record_in(const fs::path& directory, bool has_history = true) {
  ordered_json json = ordered_json::parse(read_text(directory / "halfbyte.json"));
  ordered_json out{{"tensors", json.at("tensors")}};
  for (const char* key : {"files", "kept", "ties", "buffers", "declared_dtype"}) out[key] = json[key];
  if (!has_history) {
    for (auto& tensor : out["tensors"]) tensor.erase("error");
    out.erase("kept");
  }
  return out;
}

void check_same(const fs::path& found, const fs::path& wanted, bool has_history = true) {
  CHECK(files_in(found) == files_in(wanted));
  CHECK(record_in(found, has_history) == record_in(wanted, has_history));
  CHECK(files::verify(open_checkpoint(found)).findings.empty());
}

}  // namespace

TEST_CASE("tensors in memory: dense tensors give the bytes that their directory gives", "[memory_source]") {
  const std::vector<std::pair<const char*, QuantizeOptions>> rows = {
      {"nothing asked", {}},
      {"groups of 32", {.group_size = 32}},
      {"one scale a row", {.group_size = kPerChannel}},
      {"shards", {.shard_size = 3000}},
      {"one thread", {.threads = 1}},
      {"three threads", {.threads = 3}},
      {"all kept", {.keep = {"*"}}},
      {"two schemes", {.halfbyte_only = true, .scheme_for = {{"*mlp*", "nf4"}}}},
      {"nested scales", {.scheme = "nf4", .nested_scales = true}},
      {"embedding and head", {.halfbyte_only = true, .embedding = "hb4", .head = "sym_int8"}}};
  for (const auto& [what, options] : rows) {
    for (const bool is_tied : {false, true}) {
      INFO(what << (is_tied ? ", tied" : ""));
      const Scratch scratch;
      QuantizeOptions each = options;
      if (is_tied) each.head.reset();
      auto tensors = llama_tensors();
      if (is_tied) tensors.back().bytes = tensors.front().bytes;
      write_checkpoint(scratch / "src", tensors, nullptr);
      write_text(scratch / "src" / "config.json", config_text(is_tied));
      const auto wanted = quantize(scratch / "src", scratch / "wanted", each);
      const auto found = quantize(source_of(tensors, config_text(is_tied)), scratch / "found", each);
      check_same(scratch / "found", scratch / "wanted");
      CHECK(found.source_bytes == wanted.source_bytes);
      CHECK(found.result_bytes == wanted.result_bytes);
      CHECK(found.quantized_tensors == wanted.quantized_tensors);
      CHECK(found.kept_tensors == wanted.kept_tensors);
      CHECK(found.rel_rmse == wanted.rel_rmse);
    }
  }
}

TEST_CASE("tensors in memory: every scheme, dtype and rank, without a configuration", "[memory_source]") {
  auto tensors = matrices();
  const std::vector<TestTensor> others = {float_tensor("scalar", {}),
                                          float_tensor("cube.weight", {2, 3, 4}),
                                          float_tensor("odd.weight", {3, 172}),
                                          {"empty.weight", "BF16", {0, 64}, ""},
                                          {"empty", "I32", {0}, ""},
                                          {"ids", "I64", {2}, std::string(16, '\1')},
                                          {"flags", "BOOL", {3}, std::string("\0\1\0", 3)},
                                          {"fp8.weight", "F8_E4M3", {2, 64}, std::string(128, '\x38')},
                                          {"fp4.weight", "F4", {3, 6}, std::string(9, '\x21')}};
  tensors.insert(tensors.begin() + 1, others.begin(), others.end());
  for (int i = 0; i < 30; ++i) tensors.push_back({"none." + std::to_string(i * 7 % 30), "F32", {0}, ""});
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    const Scratch scratch;
    const QuantizeOptions options{.scheme = std::string(scheme.name), .halfbyte_only = true};
    write_checkpoint(scratch / "src", tensors, nullptr);
    quantize(scratch / "src", scratch / "wanted", options);
    quantize(source_of(tensors), scratch / "found", options);
    CHECK(names_in(scratch / "found") == std::vector<std::string>{"halfbyte.json", "model.safetensors"});
    check_same(scratch / "found", scratch / "wanted");
  }
}

TEST_CASE("tensors in memory: no tensors at all", "[memory_source]") {
  const Scratch scratch;
  quantize(MemorySource{}, scratch / "empty");
  CHECK(open_checkpoint(scratch / "empty").tensors.empty());
}

TEST_CASE("tensors in memory: packed tensors keep their codes, in every scheme", "[memory_source]") {
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    const Scratch scratch;
    write_packed(scheme, scratch / "once");
    quantize(scratch / "once", scratch / "wanted", {.keep_codes = true});
    const Unpacked held(scratch / "once");
    CHECK(held.source.packed.size() == 3);
    const auto summary = quantize(held.source, scratch / "found", {.keep_codes = true});
    CHECK(summary.quantized_tensors == 3);
    CHECK(summary.kept_tensors == 1);
    check_same(scratch / "found", scratch / "wanted", false);
    quantize(held.source, scratch / "shards", {.shard_size = 20'000, .keep_codes = true});
    CHECK(open_checkpoint(scratch / "shards").data_files.size() > 1);
    CHECK(record_in(scratch / "shards")["tensors"] == record_in(scratch / "found")["tensors"]);
  }
}

TEST_CASE("tensors in memory: packed tensors are quantised again, or beside them what is not, where that is asked for",
          "[memory_source]") {
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    const Scratch scratch;
    write_packed(scheme, scratch / "once");
    const Unpacked held(scratch / "once");
    const QuantizeOptions again{.scheme = "sym_int8", .halfbyte_only = true, .requantize = true};
    quantize(scratch / "once", scratch / "wanted", again);
    quantize(held.source, scratch / "found", again);
    REQUIRE(open_checkpoint(scratch / "found").manifest.tensors.size() == 4);
    CHECK(record_in(scratch / "found")["tensors"] == record_in(scratch / "wanted")["tensors"]);
    check_error(ErrorCode::kUnsupported, {"tensors in memory", "\"a.weight\"", "quantised already", "requantize"},
                [&] { quantize(held.source, scratch / "not"); });

    const std::vector more{float_tensor("more.weight", {64, 128})};
    MemorySource mixed = held.source;
    mixed.tensors.push_back(source_of(more).tensors.front());
    const auto summary = quantize(mixed, scratch / "mixed", {.halfbyte_only = true, .keep_packed = true});
    CHECK(summary.quantized_tensors == 1);
    const Checkpoint result = open_checkpoint(scratch / "mixed"), once = open_checkpoint(scratch / "once");
    CHECK(files::verify(result).findings.empty());
    CHECK(result.manifest.find("more.weight")->scheme == find_scheme("sym_int4"));
    for (const files::TensorRecord& record : once.manifest.tensors)
      CHECK(result.manifest.find(record.name)->xxh3_128 == record.xxh3_128);
    CHECK_FALSE(fs::exists(scratch / "not"));
  }
}

TEST_CASE("tensors in memory: an order of columns stays beside the codes", "[memory_source]") {
  std::vector<std::int32_t> order(32);
  for (int column = 0; column < 32; ++column) order[static_cast<std::size_t>(column)] = column * 5 % 32;
  const auto tensors = packed_tensors();
  MemorySource source;
  source.packed.push_back({.name = "a.weight",
                           .shape = {2, 32},
                           .scheme = find_scheme("sym_int4"),
                           .group_size = 16,
                           .scale_dtype = Dtype::kBfloat16,
                           .original_dtype = Dtype::kBfloat16,
                           .parts = {}});
  auto& parts = source.packed.front().parts;
  parts[static_cast<std::size_t>(Part::kCodes)] = std::as_bytes(std::span(tensors[0].bytes));
  parts[static_cast<std::size_t>(Part::kScale)] = std::as_bytes(std::span(tensors[1].bytes));
  parts[static_cast<std::size_t>(Part::kColumnOrder)] = std::as_bytes(std::span(order));
  const Scratch scratch;
  quantize(source, scratch / "m", {.keep_codes = true});
  const Checkpoint m = open_checkpoint(scratch / "m");
  CHECK(files::verify(m).findings.empty());
  const files::StoredTensor* stored = m.find("a.weight_column_order");
  REQUIRE(stored);
  std::vector<std::int32_t> found(32);
  files::read_stored(m, *stored, 0, std::as_writable_bytes(std::span(found)));
  CHECK(found == order);
  const Unpacked again(scratch / "m");
  quantize(again.source, scratch / "twice", {.keep_codes = true});
  check_same(scratch / "twice", scratch / "m");
}

TEST_CASE("tensors in memory: side files lie beside the tensors, and are on record", "[memory_source]") {
  const Scratch scratch;
  const std::map<std::string, std::string> side = {{"tokenizer.model", std::string("some\0tokens", 11)},
                                                   {"generation_config.json", "{}"},
                                                   {"LICENSE", ""},
                                                   {"\xc3\xa9.txt", "e"}};
  write_checkpoint(scratch / "src", llama_tensors(), nullptr);
  write_text(scratch / "src" / "config.json", config_text());
  for (const auto& [name, text] : side) write_text(scratch / "src" / name, text);
  const auto tensors = llama_tensors();
  MemorySource source = source_of(tensors, config_text());
  source.files = side;
  // What describes the source is made anew.
  for (const char* name : {"config.json", "halfbyte.json", "quantize_config.json"}) source.files[name] = "not this";
  quantize(scratch / "src", scratch / "wanted");
  quantize(source, scratch / "found");
  CHECK(files_in(scratch / "found") == files_in(scratch / "wanted"));
  CHECK(names_in(scratch / "found") == names_in(scratch / "wanted"));
  std::set<std::string> on_record;
  for (const auto& file : open_checkpoint(scratch / "found").manifest.files) on_record.insert(file.name);
  for (const auto& [name, text] : side) CHECK(on_record.contains(name));
  CHECK(files::verify(open_checkpoint(scratch / "found")).findings.empty());
}

TEST_CASE("tensors in memory: what the configuration said of quantisation goes", "[memory_source]") {
  auto config = llama_config();
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  const auto tensors = llama_tensors();
  const Scratch scratch;
  quantize(source_of(tensors, config.dump()), scratch / "kept", {.keep = {"*"}});
  CHECK(ordered_json::parse(read_text(scratch / "kept" / "config.json")) == llama_config());
  quantize(source_of(tensors, config.dump()), scratch / "packed");
  const auto packed = ordered_json::parse(read_text(scratch / "packed" / "config.json"));
  CHECK(packed.at("quantization_config").at("quant_method") != "gptq");
}
