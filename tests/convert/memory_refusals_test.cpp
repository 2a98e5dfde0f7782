// Tensors in memory that are no checkpoint are refused, and leave nothing.
#include <limits>

#include "tests/convert/memory_sources.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::MemorySource;
using convert::quantize;
using convert::QuantizeOptions;
using files::open_checkpoint;

namespace {

// That is refused, and leaves nothing.
void check_refused(ErrorCode code, const std::vector<std::string>& parts, const MemorySource& source,
                   const QuantizeOptions& options = {}) {
  const Scratch scratch;
  check_error(code, parts, [&] { quantize(source, scratch / "dst", options); });
  CHECK(names_in(scratch.path()).empty());
}

}  // namespace

TEST_CASE("tensors in memory: tensors that cannot be are refused by name, and leave nothing", "[memory_source]") {
  const std::string sixteen(16, '\1');
  const auto refused = [&](const std::string& part, const std::string& name, Dtype dtype,
                           const std::vector<std::int64_t>& shape) {
    INFO(part);
    MemorySource source;
    source.tensors = {{name, dtype, shape, std::as_bytes(std::span(sixteen))}};
    check_refused(ErrorCode::kInvalidArgument,
                  {"tensor \"" + std::string(name == "\xff.weight" ? "\\xff.weight" : name), part}, source);
  };
  refused("16 bytes for a shape of 12 bytes", "a", Dtype::kFloat32, {3});
  refused("16 bytes for a shape of 20 bytes", "a", Dtype::kFloat32, {5});
  refused("16 bytes for a shape of 2 bytes", "a", Dtype::kBfloat16, {});
  refused("16 bytes for a shape of 0 bytes", "a", Dtype::kBfloat16, {0, 8});
  refused("negative length", "a", Dtype::kFloat32, {-2, -2});
  refused("possible number of bytes", "a", Dtype::kFloat32, {std::int64_t{1} << 32, std::int64_t{1} << 32, 4});
  refused("no safetensors file", "\xff.weight", Dtype::kFloat32, {4});
  refused("no safetensors file", "__metadata__", Dtype::kFloat32, {4});

  const auto tensors = llama_tensors();
  MemorySource twice = source_of(tensors);
  twice.tensors.push_back(twice.tensors[2]);
  check_refused(ErrorCode::kInvalidArgument, {"tensor \"model.layers.0.self_attn.q_proj.weight\": is there twice"},
                twice);
}

TEST_CASE("tensors in memory: packed tensors that cannot be are refused by name, and leave nothing",
          "[memory_source]") {
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    const Scratch scratch;
    write_packed(scheme, scratch / "once");
    const Unpacked held(scratch / "once");
    const auto refused = [&](const std::string& part, auto change) {
      INFO(part);
      MemorySource source = held.source;
      change(source);
      check_refused(ErrorCode::kInvalidArgument, {"tensor \"", part}, source, {.keep_codes = true});
    };
    const std::string whole = "a packed tensor is a matrix of whole groups";
    refused("no scheme", [](MemorySource& s) { s.packed[0].scheme = nullptr; });
    refused(whole, [](MemorySource& s) { s.packed[0].shape = {256}; });
    refused(whole, [](MemorySource& s) { s.packed[0].shape = {301, 255}; });
    refused(whole, [](MemorySource& s) { s.packed[0].shape = {0, 256}; });
    refused(whole, [](MemorySource& s) { s.packed[0].shape = {301, 0}; });
    refused(whole, [](MemorySource& s) { s.packed[0].shape = {301, -256}; });
    refused(whole, [](MemorySource& s) { s.packed[0].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}; });
    refused(whole, [](MemorySource& s) { s.packed[0].group_size = 0; });
    refused("", [](MemorySource& s) { s.packed[0].shape = {300, 256}; });
    for (const PartRule& rule : scheme.parts) {
      const auto index = static_cast<std::size_t>(rule.part);
      if (held.source.packed[0].parts[index].empty()) continue;
      refused("", [&](MemorySource& s) { s.packed[0].parts[index] = {}; });
      refused("", [&](MemorySource& s) { s.packed[0].parts[index] = s.packed[0].parts[index].first(1); });
    }
    refused("\"a.weight\": is there twice", [](MemorySource& s) { s.packed.push_back(s.packed[0]); });
    refused("\"a.weight\": is there twice", [](MemorySource& s) {
      s.tensors.push_back({"a.weight", Dtype::kUint8, {1}, s.packed[0].parts[0].first(1)});
    });
    const std::string part_name = open_checkpoint(scratch / "once").manifest.find("a.weight")->parts[Part::kScale];
    refused(part_name + "\": is there twice", [&](MemorySource& s) {
      s.tensors.push_back({part_name, Dtype::kUint8, {1}, s.packed[0].parts[0].first(1)});
    });
  }
}

TEST_CASE("tensors in memory: names of files that lead elsewhere, or are those of the result's tensors, are refused",
          "[memory_source]") {
  const auto tensors = llama_tensors();
  const std::vector<std::pair<std::string, const char*>> rows = {
      {"", "without a folder"},
      {".", "without a folder"},
      {"..", "without a folder"},
      {"a/b.json", "without a folder"},
      {"a\\b.json", "without a folder"},
      {"/etc/passwd", "without a folder"},
      {"a/", "without a folder"},
      {std::string("a\0b", 3), "without a folder"},
      {"\xff", "UTF-8"},
      {"model.safetensors", "the result's tensors"},
      {"model-00001-of-00002.safetensors", "the result's tensors"},
      {"model.safetensors.index.json", "the result's tensors"}};
  for (const auto& [name, part] : rows) {
    MemorySource source = source_of(tensors, config_text());
    source.files = {{name, "text"}};
    check_refused(ErrorCode::kInvalidArgument, {"file \"", part}, source);
  }
}

TEST_CASE("tensors in memory: options that want a source on the disk, or make no sense, are refused",
          "[memory_source]") {
  const auto tensors = llama_tensors();
  const MemorySource source = source_of(tensors, config_text());
  check_refused(ErrorCode::kInvalidArgument, {"resume", "no file to go on from"}, source, {.resume = true});
  check_refused(ErrorCode::kInvalidArgument, {"threads: -1 is negative"}, source, {.threads = -1});
  check_refused(ErrorCode::kInvalidArgument, {"keep_packed: nothing of tensors in memory is packed"}, source,
                {.keep_packed = true});
  check_refused(ErrorCode::kInvalidArgument, {"no_such"}, source, {.scheme = "no_such"});
  check_refused(ErrorCode::kCorrupt, {"config.json"}, source_of(tensors, "{"));
  check_refused(ErrorCode::kCorrupt, {"config.json: not a JSON object"}, source_of(tensors, "[1]"));

  const Scratch scratch;
  write_text(scratch / "dst" / "mine", "text");
  check_error(ErrorCode::kAlreadyExists, {"dst: exists already", "overwrite"},
              [&] { quantize(source, scratch / "dst"); });
  check_error(ErrorCode::kAlreadyExists, {"dst: holds files that are no checkpoint"},
              [&] { quantize(source, scratch / "dst", {.overwrite = true}); });
  CHECK(names_in(scratch / "dst") == std::vector<std::string>{"mine"});
  quantize(source, scratch / "other");
  quantize(source, scratch / "other", {.group_size = 16, .overwrite = true});
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"dst", "other"});
}

TEST_CASE("tensors in memory: what is not finite is named, and nothing stays", "[memory_source]") {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto tensors = matrices();
    std::vector<float> values(13 * 128, 1.0F);
    values[7 * 128 + 3] = value;
    tensors[1].bytes = floats(values, Dtype::kFloat32);
    check_refused(ErrorCode::kCorrupt, {"\"bb.weight\"", "row 7", "column 3"}, source_of(tensors));
  }
}

TEST_CASE("tensors in memory: a stop leaves nothing, whenever it comes", "[memory_source]") {
  const auto tensors = llama_tensors();
  const Scratch packed;
  write_packed(scheme(SchemeId::kSymInt4), packed / "once");
  const Unpacked held(packed / "once");
  for (const bool is_packed : {false, true}) {
    for (int calls = 0; calls < 4; ++calls) {
      INFO((is_packed ? "packed" : "dense") << ", after " << calls);
      std::stop_source stop;
      if (calls == 0) stop.request_stop();
      QuantizeOptions options{.threads = 1, .keep_codes = is_packed, .stop = stop.get_token()};
      options.progress = [&, done = 0](std::uint64_t, std::uint64_t) mutable {
        if (++done == calls) stop.request_stop();
      };
      check_refused(ErrorCode::kInterrupted, {"stopped"}, is_packed ? held.source : source_of(tensors, config_text()),
                    options);
    }
  }
}
