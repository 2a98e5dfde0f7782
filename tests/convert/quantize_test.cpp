#include <halfbyte/convert.h>

#include <random>

#include "loader/files/verify.h"
#include "tests/loader/files/formats/pytorch/torch_file.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::quantize;
using files::open_checkpoint;

TEST_CASE("quantize: tiny-llama, and what the manifest says of it", "[convert]") {
  const fs::path source = test_data() / "tiny-llama";
  const Scratch scratch;
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  convert::QuantizeOptions options;
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(done >= last);
    last = done;
    total = all;
  };
  const auto summary = quantize(source, scratch / "dst", options);
  CHECK(last == total);
  CHECK(total == summary.source_bytes);
  CHECK(summary.quantized_tensors == 28);
  CHECK(summary.kept_tensors == 11);
  CHECK(summary.rel_rmse < 0.092);  // measured .0895
  const auto result = open_checkpoint(scratch / "dst");
  CHECK(result.size_bytes == summary.result_bytes);
  CHECK_FALSE(result.manifest.is_derived);
  const auto original = open_checkpoint(source);
  for (const auto& tensor : original.tensors) {
    INFO(tensor.name);
    const auto* record = result.manifest.find(tensor.name);
    REQUIRE(record);
    CHECK(record->shape == tensor.shape);
    CHECK((record->original_dtype == tensor.dtype));
    CHECK((record->scheme != nullptr) != result.manifest.kept.contains(tensor.name));
    CHECK(record->error.has_value() == (record->scheme != nullptr));
  }
  CHECK(result.manifest.buffers.size() == original.manifest.buffers.size());
  const auto report = files::verify(result, &original);
  CHECK(report.findings.empty());
  CHECK(report.tensors_unhashed == 0);
}

TEST_CASE("quantize: mixed dtypes, ranks and sizes", "[convert]") {
  const Scratch scratch;
  const std::vector<TestTensor> tensors = {
      float_tensor("f32.weight", {3, 64}, Dtype::kFloat32),
      float_tensor("f16.weight", {3, 64}, Dtype::kFloat16),
      float_tensor("bf16.weight", {3, 64}, Dtype::kBfloat16),
      float_tensor("odd.weight", {3, 172}),
      float_tensor("scalar", {}),
      float_tensor("cube.weight", {2, 3, 4}),
      {"empty.weight", "BF16", {0, 64}, ""},
      {"empty", "I32", {0}, ""},
      {"ids", "I64", {2}, std::string(16, '\1')},
      {"flags", "BOOL", {3}, std::string("\0\1\0", 3)},
      {"fp8.weight", "F8_E4M3", {2, 64}, std::string(128, '\x38')},
      {"double", "F64", {1}, "12345678"},
  };
  write_checkpoint(scratch / "src", tensors);
  const auto summary = quantize(scratch / "src", scratch / "dst");
  CHECK(summary.quantized_tensors == 3);
  CHECK(summary.kept_tensors == 9);
  const auto result = open_checkpoint(scratch / "dst");
  CHECK((result.manifest.find("f32.weight")->scale_dtype == Dtype::kFloat16));
  CHECK((result.manifest.find("f32.weight")->original_dtype == Dtype::kFloat32));
  CHECK(result.manifest.kept.at("odd.weight") == "in_features 172: no group size of 128, 64, 32, 16 divides it");
  CHECK(result.manifest.kept.size() == 9);
  const auto original = open_checkpoint(scratch / "src");
  const auto report = files::verify(result, &original);
  CHECK(report.findings.empty());
  for (const auto& difference : report.differences) {
    INFO(difference.tensor);
    CHECK((difference.rel_rmse == 0) == (result.manifest.find(difference.tensor)->scheme == nullptr));
  }
}

TEST_CASE("quantize: no tensors, and no configuration", "[convert]") {
  const Scratch scratch;
  write_text(scratch / "empty.safetensors", safetensors({}));
  quantize(scratch / "empty.safetensors", scratch / "empty");
  CHECK(open_checkpoint(scratch / "empty").tensors.empty());
  write_text(scratch / "lone.safetensors", safetensors({float_tensor("a.weight", {1, 64})}));
  const auto summary = quantize(scratch / "lone.safetensors", scratch / "lone");
  CHECK(summary.notes.size() == 1);
  CHECK(names_in(scratch / "lone") == std::vector<std::string>{"halfbyte.json", "model.safetensors"});
}

TEST_CASE("quantize: nothing to quantise leaves config.json as it was", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors());
  write_text(scratch / "src" / "config.json", " {\"a\" : 1}");
  quantize(scratch / "src", scratch / "dst", {.keep = {"*"}});
  CHECK(read_text(scratch / "dst" / "config.json") == " {\"a\" : 1}");
}

TEST_CASE("quantize: a result that kept everything can be quantised after all", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  quantize(scratch / "src", scratch / "kept", {.keep = {"*"}});
  quantize(scratch / "kept", scratch / "dst");
  quantize(scratch / "src", scratch / "direct");
  CHECK(read_text(scratch / "dst" / "model.safetensors") == read_text(scratch / "direct" / "model.safetensors"));
  const auto twice = open_checkpoint(scratch / "dst").manifest;
  const auto once = open_checkpoint(scratch / "direct").manifest;
  CHECK(twice.kept == once.kept);
  CHECK(twice.files.size() == once.files.size());
  CHECK(twice.source_files.size() == 1);
  CHECK(files::verify(open_checkpoint(scratch / "dst")).findings.empty());
}

TEST_CASE("quantize: a tied head is stored once", "[convert]") {
  const Scratch scratch;
  auto tensors = llama_tensors();
  tensors.back().bytes = tensors.front().bytes;
  write_checkpoint(scratch / "src", tensors, llama_config(true));
  quantize(scratch / "src", scratch / "dst");
  const auto result = open_checkpoint(scratch / "dst");
  CHECK_FALSE(result.find("lm_head.weight"));
  CHECK(result.manifest.ties ==
        std::vector<std::pair<std::string, std::string>>{{"lm_head.weight", "model.embed_tokens.weight"}});
  const auto original = open_checkpoint(scratch / "src");
  CHECK(files::verify(result, &original).findings.empty());

  tensors.back().bytes[5] = static_cast<char>(tensors.back().bytes[5] ^ 1);
  write_checkpoint(scratch / "different", tensors, llama_config(true));
  check_error(ErrorCode::kCorrupt, {"lm_head.weight", "set tie_word_embeddings to false"},
              [&] { quantize(scratch / "different", scratch / "dst2"); });
  CHECK_FALSE(fs::exists(scratch / "dst2"));
}

TEST_CASE("quantize: scales that are multiples of their row's, written, read, verified and compared", "[convert]") {
  struct Case {
    const char* scheme;
    Dtype scale_dtype;
    std::int64_t scale_columns;  // of 96 weights a row
  };
  for (const Case& c : {Case{"hb4", Dtype::kInt8, 3}, Case{"hb4_fine", Dtype::kUint8, 6}}) {
    INFO(c.scheme);
    const Scratch scratch;
    write_checkpoint(scratch / "src", {float_tensor("a.weight", {300, 96}, Dtype::kFloat32),
                                       float_tensor("b.weight", {33, 1024}), float_tensor("c.weight", {3, 48})});
    quantize(scratch / "src", scratch / "dst", {.scheme = c.scheme, .halfbyte_only = true});
    const auto source = open_checkpoint(scratch / "src"), result = open_checkpoint(scratch / "dst");
    const auto* record = result.manifest.find("a.weight");
    REQUIRE(record);
    CHECK(record->scale_dtype == c.scale_dtype);
    CHECK(record->size_bytes == static_cast<std::uint64_t>(300 * (48 + c.scale_columns + 2) + 16));
    CHECK(result.find("a.weight_scale")->shape == std::vector<std::int64_t>{300, c.scale_columns});
    CHECK(result.find("a.weight_row_scale")->shape == std::vector<std::int64_t>{300});
    CHECK(result.manifest.find("c.weight")->group_size == 16);
    const auto report = files::verify(result, &source);
    CHECK(report.findings.empty());
    for (const auto& difference : report.differences) {
      INFO(difference.tensor);
      const auto& error = *result.manifest.find(difference.tensor)->error;
      CHECK(difference.rel_rmse < 0.12);
      CHECK(difference.rel_rmse == Approx(error.rel_rmse).epsilon(1e-3));
    }
    quantize(scratch / "dst", scratch / "again", {.keep_codes = true});
    const auto again = open_checkpoint(scratch / "again");
    CHECK(files::verify(again).findings.empty());
    CHECK(again.manifest.find("a.weight")->xxh3_128 == record->xxh3_128);
  }
}

TEST_CASE("quantize: shards stay shards", "[convert]") {
  const Scratch scratch;
  const auto tensors = llama_tensors();
  const std::string one = "model-00001-of-00002.safetensors";
  const std::string two = "model-00002-of-00002.safetensors";
  write_text(scratch / "src" / one, safetensors({tensors.begin(), tensors.begin() + 5}));
  write_text(scratch / "src" / two, safetensors({tensors.begin() + 5, tensors.end()}));
  ordered_json map;
  for (std::size_t i = 0; i < tensors.size(); ++i) map[tensors[i].name] = i < 5 ? one : two;
  write_text(scratch / "src" / "model.safetensors.index.json", ordered_json{{"weight_map", map}}.dump());
  write_text(scratch / "src" / "config.json", llama_config().dump());
  quantize(scratch / "src", scratch / "dst", {.group_size = 32});
  CHECK(names_in(scratch / "dst") ==
        std::vector<std::string>{"config.json", "halfbyte.json", one, two, "model.safetensors.index.json"});
  const auto result = open_checkpoint(scratch / "dst");
  CHECK(result.manifest.source_files.size() == 2);
  CHECK_FALSE(result.manifest.source_files[1].xxh3_128.empty());
  CHECK(files::verify(result).findings.empty());
  // The same tensors in one file give the same codes.
  write_checkpoint(scratch / "whole", tensors, llama_config());
  quantize(scratch / "whole", scratch / "dst1", {.group_size = 32});
  const auto whole = open_checkpoint(scratch / "dst1");
  for (const auto& record : whole.manifest.tensors)
    CHECK(result.manifest.find(record.name)->xxh3_128 == record.xxh3_128);
}

TEST_CASE("quantize: what is copied and what is not", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  for (const char* name :
       {"tokenizer.model", "generation_config.json", "LICENSE", "chat_template.jinja", "modeling.py",
        "pytorch_model.bin", "model.gguf", ".gitattributes", "pytorch_model.bin.index.json", "adapter.safetensors"}) {
    write_text(scratch / "src" / name, std::string("content of ") + name);
  }
  write_text(scratch / "src" / "original" / "params.json", "x");
  write_text(scratch / "src" / "inner" / "blob", "linked");
  fs::create_symlink("inner/blob", scratch / "src" / "link.txt");
  const auto summary = quantize(scratch / "src", scratch / "dst");
  CHECK(names_in(scratch / "dst") == std::vector<std::string>{"LICENSE", "chat_template.jinja", "config.json",
                                                              "generation_config.json", "halfbyte.json", "link.txt",
                                                              "model.safetensors", "tokenizer.model"});
  CHECK(read_text(scratch / "dst" / "LICENSE") == "content of LICENSE");
  CHECK_FALSE(fs::is_symlink(scratch / "dst" / "link.txt"));
  CHECK(read_text(scratch / "dst" / "link.txt") == "linked");
  REQUIRE(summary.notes.size() == 2);
  CHECK(summary.notes[0].str().find("modeling.py") != std::string::npos);
  CHECK(summary.notes[1].str().find("adapter.safetensors") != std::string::npos);
}

TEST_CASE("quantize: every flipped bit of a result is found", "[convert][hostile]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  write_text(scratch / "src" / "tokenizer.model", "some tokens");
  quantize(scratch / "src", scratch / "dst");
  const auto sound = contents_of(scratch / "dst");
  std::mt19937 random(1);
  int flips = 0;
  for (const auto& [name, text] : sound) {
    for (int i = 0; i < 100; ++i, ++flips) {
      std::string broken = text;
      const std::size_t byte = random() % text.size();
      const int bit = static_cast<int>(random() % 8);
      broken[byte] = static_cast<char>(broken[byte] ^ (1 << bit));
      write_text(scratch / "dst" / name, broken);
      INFO(name << ", byte " << byte << ", bit " << bit);
      bool is_found = true;
      try {
        is_found = !files::verify(open_checkpoint(scratch / "dst")).findings.empty();
      } catch (const Error&) {
      }
      CHECK(is_found);
    }
    write_text(scratch / "dst" / name, text);
  }
  CHECK(flips == 400);
  CHECK(files::verify(open_checkpoint(scratch / "dst")).findings.empty());
}

TEST_CASE("quantize: a pickle gives what safetensors give, and its file is not said to be hashed", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "st", llama_tensors(), llama_config());
  write_text(scratch / "pt" / "config.json", llama_config().dump());
  write_text(scratch / "pt" / "pytorch_model.bin", torch_file(llama_tensors()));
  quantize(scratch / "st", scratch / "a", {.group_size = 16});
  quantize(scratch / "pt", scratch / "b", {.group_size = 16});
  const auto a = open_checkpoint(scratch / "a"), b = open_checkpoint(scratch / "b");
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& record : a.manifest.tensors) {
    const auto* other = b.manifest.find(record.name);
    REQUIRE(other);
    CHECK(record.xxh3_128 == other->xxh3_128);
  }
  CHECK_FALSE(a.manifest.source_files[0].xxh3_128.empty());
  CHECK(b.manifest.source_files[0].xxh3_128.empty());
  CHECK(b.manifest.source_kind == "PyTorch");
}

TEST_CASE("quantize: views that overlap do not add up to a file that was read whole", "[convert][hostile]") {
  const Scratch scratch;
  const auto file_of = [](std::int64_t rest, const std::string& padding) {
    auto entries = torch_entries(
        pickle_of(dict({{"a", tensor_of("0", 4096, 0, {4096}, {1})}, {"b", tensor_of("0", 4096, 0, {rest}, {1})}})),
        {{"0", std::string(4096 * 4, 'x')}});
    entries.push_back({"m/padding", padding});
    return zip_of(entries);
  };
  std::string padding;
  while (file_of(1, padding).size() % 4 != 0) padding += ' ';
  const auto rest = static_cast<std::int64_t>(file_of(1, padding).size() / 4 - 4096);
  write_text(scratch / "m.pt", file_of(rest, padding));
  const auto source = open_checkpoint(scratch / "m.pt");
  REQUIRE(source.size_bytes == source.data_files[0]->size_bytes());
  quantize(scratch / "m.pt", scratch / "out");
  CHECK(open_checkpoint(scratch / "out").manifest.source_files[0].xxh3_128.empty());
}

TEST_CASE("quantize: an assumed original dtype is recorded where none was known", "[convert]") {
  const Scratch scratch;
  auto config = llama_config();
  config["bigdl_transformers_low_bit"] = "asym_int4";
  write_text(scratch / "m" / "config.json", config.dump());
  write_text(scratch / "m" / "pytorch_model.bin", torch_file(llama_tensors(true, Dtype::kFloat32)));
  quantize(scratch / "m", scratch / "a", {.group_size = 16});
  quantize(scratch / "m", scratch / "b", {.group_size = 16, .assume_original = Dtype::kBfloat16});
  CHECK_FALSE(open_checkpoint(scratch / "a").manifest.find("model.norm.weight")->original_dtype);
  CHECK((open_checkpoint(scratch / "b").manifest.find("model.norm.weight")->original_dtype == Dtype::kBfloat16));
  convert::dequantize(scratch / "m", scratch / "plain", {.assume_original = Dtype::kBfloat16});
  const auto plain = open_checkpoint(scratch / "plain");
  CHECK((plain.find("model.norm.weight")->dtype == Dtype::kBfloat16));
  CHECK((*plain.config)["torch_dtype"] == "bfloat16");
  CHECK(plain.kind == "safetensors");
}
