#include "loader/files/checkpoint.h"

#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

const std::string kOne = "model-00001-of-00002.safetensors";
const std::string kTwo = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

TestTensor tensor(const std::string& name) { return {name, "U8", {2}, "xy"}; }

void write_sharded(const fs::path& directory, const ordered_json& weight_map, const std::vector<TestTensor>& one,
                   const std::vector<TestTensor>& two) {
  write_text(directory / "config.json", "{}");
  write_text(directory / kIndex, ordered_json{{"metadata", {{"total_size", 4}}}, {"weight_map", weight_map}}.dump());
  write_text(directory / kOne, safetensors(one));
  write_text(directory / kTwo, safetensors(two));
}

}  // namespace

TEST_CASE("checkpoint: a single file with its configuration", "[checkpoint]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", llama_tensors(false), llama_config(true));
  for (const char* name : {"tokenizer.model", "README.md", "modeling.py", "pytorch_model.bin", ".hidden"})
    write_text(scratch / "m" / name, "x");
  write_text(scratch / "m" / "sub" / "file", "x");
  const auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.tensors.size() == 11);
  CHECK(opened.architecture != nullptr);
  CHECK(opened.manifest.is_derived);
  CHECK_FALSE(opened.is_quantized());
  CHECK(opened.side_files == std::vector<fs::path>{"README.md", "tokenizer.model"});
  CHECK(opened.remote_code == std::vector<fs::path>{"modeling.py"});
  CHECK(opened.other_weights == std::vector<fs::path>{"pytorch_model.bin"});
  CHECK((opened.manifest.declared_dtype == Dtype::kBfloat16));
  CHECK(opened.manifest.ties ==
        std::vector<std::pair<std::string, std::string>>{{"lm_head.weight", "model.embed_tokens.weight"}});
  REQUIRE(opened.manifest.buffers.size() == 1);
  CHECK(opened.manifest.buffers[0].how == "rope");
  REQUIRE(opened.find("model.norm.weight"));
  CHECK(opened.find("model.norm.weight")->shape == std::vector<std::int64_t>{32});
  CHECK_FALSE(opened.find("model.norm"));
  const auto mapped = files::map_data_file(opened, 0);
  const auto* norm = opened.find("model.norm.weight");
  CHECK(std::memcmp(mapped->bytes().data() + norm->offset, float_tensor("model.norm.weight", {32}).bytes.data(),
                    norm->size_bytes) == 0);
}

TEST_CASE("checkpoint: an untied model that stores both has no tie", "[checkpoint]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", llama_tensors(), llama_config(true));
  CHECK(open_checkpoint(scratch / "m").manifest.ties.empty());
}

TEST_CASE("checkpoint: a lone file", "[checkpoint]") {
  const Scratch scratch;
  write_text(scratch / "x.safetensors", safetensors({tensor("a")}));
  const auto opened = open_checkpoint(scratch / "x.safetensors");
  CHECK(!opened.has_config());
  CHECK(opened.tensors.size() == 1);
  CHECK(opened.notes.size() == 1);
}

TEST_CASE("checkpoint: shards, with an index and without", "[checkpoint]") {
  const Scratch scratch;
  write_sharded(scratch / "m", {{"a", kOne}, {"b", kTwo}}, {tensor("a")}, {tensor("b")});
  write_text(scratch / "m" / "consolidated.safetensors", "not read");
  auto opened = open_checkpoint(scratch / "m");
  CHECK(opened.data_files.size() == 2);
  CHECK(opened.find("b")->file == 1);
  CHECK(opened.other_weights == std::vector<fs::path>{"consolidated.safetensors"});
  fs::remove(scratch / "m" / kIndex);
  CHECK(open_checkpoint(scratch / "m").tensors.size() == 2);
  fs::remove(scratch / "m" / kTwo);
  check_error(ErrorCode::kCorrupt, {kOne, "2 shards", "1 are here"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("checkpoint: a file of a folder that is a model finds what lies beside it", "[checkpoint]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  write_text(scratch / "m" / "tokenizer.json", "{}");
  const auto alone = open_checkpoint(scratch / "m" / "model.safetensors");
  const auto together = open_checkpoint(scratch / "m");
  REQUIRE(alone.architecture != nullptr);
  CHECK(alone.architecture == together.architecture);
  CHECK(alone.side_files == together.side_files);
  CHECK(alone.notes == together.notes);
  CHECK(alone.has_config_file);
}

TEST_CASE("checkpoint: a file beside another model, or without a configuration, is by itself", "[checkpoint]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  write_text(scratch / "m" / "adapter.safetensors", safetensors({tensor("a")}));
  write_text(scratch / "lone" / "a.safetensors", safetensors({tensor("a")}));
  for (const char* file : {"m/adapter.safetensors", "lone/a.safetensors"}) {
    const auto opened = open_checkpoint(scratch / file);
    CHECK(opened.tensors.size() == 1);
    CHECK(opened.architecture == nullptr);
    CHECK(opened.side_files.empty());
  }
}

TEST_CASE("checkpoint: one of several files of a model is sent to its folder", "[checkpoint]") {
  const Scratch scratch;
  write_text(scratch / "m" / "config.json", llama_config().dump());
  write_text(scratch / "m" / kOne, safetensors({tensor("a")}));
  write_text(scratch / "m" / kTwo, safetensors({tensor("b")}));
  check_error(ErrorCode::kInvalidArgument, {kOne, "is one of the 2 files of a model; give ", "/m, the directory"},
              [&] { open_checkpoint(scratch / "m" / kOne); });
}

TEST_CASE("checkpoint: a text that is named as a model says what it is", "[checkpoint]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  write_text(scratch / "m" / "README.md", "# a model\n");
  write_text(scratch / "m" / "model.safetensors.txt", "12345678");
  for (const char* name : {"config.json", "README.md", "model.safetensors.txt"}) {
    INFO(name);
    check_error(ErrorCode::kUnsupported, {name, "is a text and holds no weights; give the directory, ", "/m"},
                [&] { open_checkpoint(scratch / "m" / name); });
  }
}

TEST_CASE("checkpoint: what lies where weights should be says what it is", "[checkpoint]") {
  const Scratch scratch;
  struct Row {
    const char* text;
    ErrorCode code;
    const char* said;
  };
  const Row rows[] = {
      {"", ErrorCode::kCorrupt, "is empty; copy it again"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", ErrorCode::kCorrupt,
       "git lfs pull"},
      {"<!DOCTYPE html>\n<html>", ErrorCode::kCorrupt, "is a web page"},
      {"<HTML><body>404", ErrorCode::kCorrupt, "is a web page"},
      {"Entry not found", ErrorCode::kUnsupported, "is a text and holds no weights; "},
      {"\x01\x02\x03", ErrorCode::kCorrupt, "3 bytes are too few"},
  };
  write_checkpoint(scratch / "m", llama_tensors(), llama_config());
  for (const Row& row : rows) {
    INFO(row.text);
    write_text(scratch / "m" / "model.safetensors", row.text);
    write_text(scratch / "alone.gguf", row.text);
    check_error(row.code, {"model.safetensors", row.said}, [&] { open_checkpoint(scratch / "m"); });
    check_error(row.code, {"alone.gguf", row.said}, [&] { open_checkpoint(scratch / "alone.gguf"); });
  }
}

TEST_CASE("checkpoint: more names than data to go with them are refused", "[checkpoint][hostile]") {
  const Scratch scratch;
  const auto write = [&](int count, int bytes_of_first) {
    std::string header = "{";
    for (int i = 0; i < count; ++i) {
      const int begin = i == 0 ? 0 : bytes_of_first;
      header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[)" +
                std::to_string(bytes_of_first - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
                std::to_string(bytes_of_first) + "]}";
    }
    write_text(scratch / "a.safetensors",
               with_length(header + "}") + std::string(static_cast<std::size_t>(bytes_of_first), '\0'));
  };
  write(65'537, 1'000'000);
  check_error(ErrorCode::kUnsupported, {"/a.safetensors", "65537 tensors hold 1.00 MB together", "more than 65536"},
              [&] { open_checkpoint(scratch / "a.safetensors"); });
  write(65'536, 0);
  CHECK(open_checkpoint(scratch / "a.safetensors").tensors.size() == 65'536);
}

TEST_CASE("checkpoint: shards that contradict their index", "[checkpoint][hostile]") {
  struct Case {
    const char* what;
    ordered_json weight_map;
    std::vector<TestTensor> one, two;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"listed and absent", {{"a", kOne}, {"b", kTwo}, {"c", kTwo}}, {tensor("a")}, {tensor("b")}, {"\"c\"", kTwo}},
      {"in another shard",
       {{"a", kTwo}, {"b", kTwo}, {"c", kOne}},
       {tensor("a"), tensor("c")},
       {tensor("b")},
       {"\"a\"", kOne, kTwo}},
      {"in two shards", {{"a", kOne}, {"b", kTwo}}, {tensor("a")}, {tensor("b"), tensor("a")}, {"\"a\"", kOne, kTwo}},
      {"not listed", {{"a", kOne}, {"b", kTwo}}, {tensor("a"), tensor("x")}, {tensor("b")}, {"\"x\"", kOne}},
      {"missing shard",
       {{"a", kOne}, {"b", "model-3.safetensors"}},
       {tensor("a")},
       {tensor("b")},
       {"model-3.safetensors", "\"b\""}},
      {"a folder up", {{"a", "../m.safetensors"}}, {}, {}, {"weight_map.a"}},
      {"absolute", {{"a", "/m.safetensors"}}, {}, {}, {"weight_map.a"}},
      {"in a folder", {{"a", "x/m.safetensors"}}, {}, {}, {"weight_map.a"}},
      {"a backslash", {{"a", "x\\m.safetensors"}}, {}, {}, {"weight_map.a"}},
      {"another format", {{"a", "model.bin"}}, {}, {}, {"weight_map.a"}},
      {"a number", {{"a", 1}}, {}, {}, {"weight_map.a"}},
      {"a list", ordered_json::array(), {}, {}, {"weight_map"}},
  };
  for (const Case& hostile : cases) {
    INFO(hostile.what);
    const Scratch scratch;
    write_sharded(scratch / "m", hostile.weight_map, hostile.one, hostile.two);
    check_error(ErrorCode::kCorrupt, hostile.parts, [&] { open_checkpoint(scratch / "m"); });
  }
}

TEST_CASE("checkpoint: two single sources of truth", "[checkpoint][hostile]") {
  const Scratch scratch;
  write_sharded(scratch / "m", {{"a", kOne}, {"b", kTwo}}, {tensor("a")}, {tensor("b")});
  write_text(scratch / "m" / "model.safetensors", safetensors({tensor("a")}));
  check_error(ErrorCode::kCorrupt, {"model.safetensors", "stale"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("checkpoint: the same name in two files without an index", "[checkpoint][hostile]") {
  const Scratch scratch;
  write_text(scratch / "m" / "x.safetensors", safetensors({tensor("a")}));
  write_text(scratch / "m" / "y.safetensors", safetensors({tensor("a")}));
  check_error(ErrorCode::kCorrupt, {"\"a\"", "x.safetensors", "y.safetensors"},
              [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("checkpoint: configurations that are none", "[checkpoint][hostile]") {
  const std::vector<std::string> configs = {"",
                                            "[]",
                                            "null",
                                            "{",
                                            "{\"a\":1,\"a\":2}",
                                            std::string(1000, '['),
                                            "{\"a\":\"\xff\"}",
                                            R"({"model_type":"llama"})",
                                            R"({"model_type":"llama","hidden_size":"x"})"};
  for (const std::string& config : configs) {
    INFO(config);
    const Scratch scratch;
    write_checkpoint(scratch / "m", {tensor("a")});
    write_text(scratch / "m" / "config.json", config);
    check_error(ErrorCode::kCorrupt, {"config.json"}, [&] { open_checkpoint(scratch / "m"); });
  }
}

TEST_CASE("checkpoint: a configuration of 17 MB is not read", "[checkpoint][hostile]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", {tensor("a")});
  write_text(scratch / "m" / "config.json", "{}" + std::string(17'000'000, ' '));
  check_error(ErrorCode::kCorrupt, {"config.json", "17000002"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("checkpoint: a configuration with a million keys ends soon", "[checkpoint][hostile]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", {tensor("a")});
  std::string config = "{\"k\":0";
  for (int i = 0; i < 1'000'000; ++i) config += ",\"" + std::to_string(i) + "\":0";
  write_text(scratch / "m" / "config.json", config + "}");
  check_error(ErrorCode::kCorrupt, {"config.json", "keys"}, [&] { open_checkpoint(scratch / "m"); });
}

TEST_CASE("checkpoint: other formats are named, absent ones said to be absent", "[checkpoint][hostile]") {
  const Scratch scratch;
  write_text(scratch / "gguf" / "m.gguf", "GGUF....");
  write_text(scratch / "pickle" / "pytorch_model.bin", "PK\3\4....");
  write_text(scratch / "nothing" / "README.md", "x");
  write_text(scratch / "m.gguf", "GGUF\3");
  write_text(scratch / "m.pt", "PK\3\4........");
  check_error(ErrorCode::kUnsupported, {"m.gguf", "GGUF"}, [&] { open_checkpoint(scratch / "gguf"); });
  check_error(ErrorCode::kCorrupt, {"pytorch_model.bin", "pickle"}, [&] { open_checkpoint(scratch / "pickle"); });
  check_error(ErrorCode::kCorrupt, {"m.gguf", "version"}, [&] { open_checkpoint(scratch / "m.gguf"); });
  check_error(ErrorCode::kCorrupt, {"m.pt", "pickle"}, [&] { open_checkpoint(scratch / "m.pt"); });
  check_error(ErrorCode::kNotFound, {"nothing", "safetensors"}, [&] { open_checkpoint(scratch / "nothing"); });
  check_error(ErrorCode::kNotFound, {"absent"}, [&] { open_checkpoint(scratch / "absent"); });
  check_error(ErrorCode::kNotFound, {"org/model is not a directory here; download the checkpoint first"},
              [&] { open_checkpoint("org/model"); });
}

TEST_CASE("checkpoint: quantisations of others are refused by name", "[checkpoint][hostile]") {
  const Scratch scratch;
  for (const char* method : {"fp8", "aqlm", "eetq", "quanto", "vptq"}) {
    INFO(method);
    write_checkpoint(scratch / method, {tensor("a")}, {{"quantization_config", {{"quant_method", method}}}});
    check_error(ErrorCode::kUnsupported, {method, "config.json"}, [&] { open_checkpoint(scratch / method); });
  }
  write_checkpoint(scratch / "ipex", {tensor("a")}, {{"bigdl_transformers_low_bit", "sym_int4"}});
  check_error(ErrorCode::kUnsupported, {"ipex-llm"}, [&] { open_checkpoint(scratch / "ipex"); });
}

TEST_CASE("checkpoint: a rope scaling that is not known leaves a note, not an error", "[checkpoint]") {
  const Scratch scratch;
  auto config = llama_config();
  config["rope_scaling"] = {{"rope_type", "mrope"}, {"factor", 4.0}};
  write_checkpoint(scratch / "m", llama_tensors(), config);
  const auto opened = open_checkpoint(scratch / "m");
  REQUIRE(opened.notes.size() == 1);
  CHECK(opened.notes[0].find("mrope") != std::string::npos);
}
