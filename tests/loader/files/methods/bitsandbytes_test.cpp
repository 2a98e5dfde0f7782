#include "loader/files/methods/bitsandbytes.h"

#include "tests/loader/files/methods/bitsandbytes_source.h"
#include "tests/loader/files/read_values.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

files::Checkpoint opened(const Scratch& scratch, const std::vector<TestTensor>& tensors,
                         const ordered_json& config = bitsandbytes_config()) {
  write_checkpoint(scratch / "m", tensors, config);
  return open_checkpoint(scratch / "m");
}

TestTensor& tensor_of(std::vector<TestTensor>& tensors, const std::string& suffix) {
  for (TestTensor& tensor : tensors) {
    if (tensor.name.ends_with(suffix)) return tensor;
  }
  FAIL("no tensor " << suffix);
  return tensors.front();
}

}  // namespace

TEST_CASE("bitsandbytes: the first of two codes is the high one", "[bitsandbytes]") {
  const Scratch scratch;
  BitsandbytesWeight weight;
  std::vector<TestTensor> tensors = weight.tensors();
  tensor_of(tensors, "a.weight").bytes = std::string(64, '\x2f');  // 2, 15, 2, 15 ...
  tensor_of(tensors, ".absmax").bytes = floats({1.0F, 2.0F, 0.5F, 4.0F}, Dtype::kFloat32);
  const auto checkpoint = opened(scratch, tensors);
  const std::vector<float> values = values_of(checkpoint, "a.weight");
  CHECK(values[0] == -0.5250730514526367F);
  CHECK(values[1] == 1.0F);
  CHECK(values[32] == -0.5250730514526367F * 2.0F);
  CHECK(values[127] == 4.0F);
}

TEST_CASE("bitsandbytes: whole blocks stay where they lie", "[bitsandbytes]") {
  for (const char* type : {"nf4", "fp4"}) {
    for (const char* storage : {"U8", "BF16", "F16", "F32"}) {
      for (const bool is_nested : {false, true}) {
        for (const std::int64_t block_size : {32, 64, 256, 4096}) {
          INFO(type << " " << storage << " " << is_nested << " " << block_size);
          const Scratch scratch;
          BitsandbytesWeight weight{"x.weight", {3, block_size * 2}, block_size, type, is_nested};
          weight.storage = storage;
          std::vector<TestTensor> tensors = weight.tensors();
          tensors.push_back(float_tensor("n.weight", {5}));
          const auto checkpoint = opened(scratch, tensors);
          CHECK(checkpoint.kind == "bitsandbytes");
          CHECK(checkpoint.notes.empty());
          CHECK_FALSE(checkpoint.config->contains("quantization_config"));
          const files::TensorRecord& record = record_of(checkpoint, "x.weight");
          CHECK(record.scheme->name == type);
          CHECK(record.group_size == block_size);
          CHECK(record.original_dtype == Dtype::kBfloat16);
          CHECK(record.nested_offset.has_value() == is_nested);
          CHECK_FALSE(is_computed(checkpoint, "x.weight"));
          check_values(values_of(checkpoint, "x.weight"), weight.wanted());
        }
      }
    }
  }
}

TEST_CASE("bitsandbytes: blocks that cross rows become groups with the same values", "[bitsandbytes]") {
  struct Row {
    std::vector<std::int64_t> shape;
    std::int64_t block_size, group_size;
  };
  // The last has a shorter block at its end, as most have.
  for (const Row& row :
       {Row{{5, 48}, 32, 16}, Row{{4, 192}, 4096, 64}, Row{{3, 40}, 64, 8}, Row{{2, 3, 96}, 128, 32}}) {
    for (const bool is_nested : {false, true}) {
      INFO(row.block_size << " " << is_nested);
      const Scratch scratch;
      const BitsandbytesWeight weight{"x.weight", row.shape, row.block_size, "nf4", is_nested};
      const auto checkpoint = opened(scratch, weight.tensors());
      const files::TensorRecord& record = record_of(checkpoint, "x.weight");
      CHECK(record.scheme->name == "nf4");
      CHECK(record.group_size == row.group_size);
      CHECK_FALSE(record.nested_offset);
      CHECK_FALSE(is_translated(checkpoint, *checkpoint.find("x.weight")));
      REQUIRE(checkpoint.notes.size() == 1);
      check_values(values_of(checkpoint, "x.weight"), weight.wanted());
    }
  }
}

TEST_CASE("bitsandbytes: scales nested in other blocks are expanded", "[bitsandbytes]") {
  const Scratch scratch;
  BitsandbytesWeight weight{"x.weight", {40, 64}, 64, "fp4", true};
  weight.nested_block_size = 16;
  const auto checkpoint = opened(scratch, weight.tensors());
  CHECK(record_of(checkpoint, "x.weight").group_size == 64);
  check_values(values_of(checkpoint, "x.weight"), weight.wanted());
}

TEST_CASE("bitsandbytes: what no scheme holds is read as float32", "[bitsandbytes]") {
  Codebook other = *find_scheme("nf4")->codebook;
  other[3] += 0.01F;
  struct Row {
    std::vector<std::int64_t> shape;
    std::optional<Codebook> codebook;
    const char* note;
  };
  for (const Row& row : {Row{{7, 20}, {}, "rows and words"}, Row{{3, 3}, {}, "rows and words"},
                         Row{{64}, {}, "rows and words"}, Row{{4, 64}, other, "quant_map"}}) {
    for (const bool is_nested : {false, true}) {
      INFO(row.shape.back() << " " << is_nested);
      const Scratch scratch;
      BitsandbytesWeight weight{"x.weight", row.shape, 32, "nf4", is_nested};
      weight.codebook = row.codebook;
      const auto checkpoint = opened(scratch, weight.tensors());
      const files::TensorRecord& record = record_of(checkpoint, "x.weight");
      CHECK(record.scheme == nullptr);
      CHECK(record.shape == row.shape);
      CHECK(record.stored_dtype == Dtype::kFloat32);
      CHECK(record.original_dtype == Dtype::kBfloat16);
      REQUIRE(checkpoint.notes.size() == 1);
      CHECK_THAT(checkpoint.notes[0], Catch::Contains(row.note));
      check_values(values_of(checkpoint, "x.weight"), weight.wanted());
      // Any part of it by itself.
      std::vector<float> two(2);
      files::read_stored(checkpoint, *checkpoint.find("x.weight"), 4, std::as_writable_bytes(std::span(two)));
      check_values(two, {weight.wanted()[1], weight.wanted()[2]});
    }
  }
}

TEST_CASE("bitsandbytes: a configuration of 2023 has no quant_method", "[bitsandbytes]") {
  const Scratch scratch;
  ordered_json config = bitsandbytes_config();
  config["quantization_config"].erase("quant_method");
  const auto checkpoint = opened(scratch, BitsandbytesWeight{}.tensors(), config);
  CHECK(checkpoint.kind == "bitsandbytes");
  CHECK(checkpoint.is_quantized());
}

TEST_CASE("bitsandbytes: a lone file says it all", "[bitsandbytes]") {
  const Scratch scratch;
  write_checkpoint(scratch / "m", BitsandbytesWeight{}.tensors());
  const auto checkpoint = open_checkpoint(scratch / "m/model.safetensors");
  CHECK(checkpoint.kind == "bitsandbytes");
  check_values(values_of(checkpoint, "a.weight"), BitsandbytesWeight{}.wanted());
}

TEST_CASE("bitsandbytes: 8-bit weights are refused by name", "[bitsandbytes]") {
  const Scratch scratch;
  ordered_json config = bitsandbytes_config();
  check_error(ErrorCode::kUnsupported, {"a.SCB", "LLM.int8"}, [&] {
    opened(scratch, {{"a.weight", "I8", {2, 2}, "1234"}, float_tensor("a.SCB", {2})}, config);
  });
  config["quantization_config"]["load_in_8bit"] = true;
  check_error(ErrorCode::kUnsupported, {"load_in_8bit", "LLM.int8"}, [&] {
    opened(scratch, {float_tensor("a.weight", {2, 2})}, config);
  });
}

TEST_CASE("bitsandbytes: a state that says something else is corrupt, by name", "[bitsandbytes][hostile]") {
  const std::string huge = "9223372036854775807";
  const std::vector<std::pair<std::string, std::string>> states = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "an object"},
      {std::string(3, '\0'), "zero byte"},
      {std::string(5000, ' '), "no quant_state"},
      {std::string(100, '['), "nested deeper"},
      {R"({"quant_type": 4})", "quant_type"},
      {R"({"quant_type": "nf4", "dtype": "bfloat16", "shape": [2, 64]})", "blocksize"},
      {R"({"quant_type": "nf4", "blocksize": -64, "dtype": "bfloat16", "shape": [2, 64]})", "blocksize"},
      {R"({"quant_type": "nf4", "blocksize": 0, "dtype": "bfloat16", "shape": [2, 64]})", "blocksize"},
      {R"({"quant_type": "nf4", "blocksize": 1e3, "dtype": "bfloat16", "shape": [2, 64]})", "blocksize"},
      {R"({"quant_type": "nf4", "blocksize": )" + huge + R"(, "dtype": "bfloat16", "shape": [2, 64]})", "blocksize"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "int8", "shape": [2, 64]})", "dtype"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [2, 66]})", "[2, 66]"},
      {R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [2, 64]})", "a.weight.absmax"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [-2, 64]})", "shape"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [0, 64]})", "shape"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [)" + huge + ", " + huge + "]}",
       "shape"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": "wide"})", "shape"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [2, 64], "nested_offset": 1})",
       "nested_blocksize"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [2, 64], "nested_blocksize": 256,
           "nested_offset": 1e300})",
       "nested_offset"},
      {R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [2, 64], "nested_blocksize": 256,
           "nested_offset": 0.5})",
       "a.weight.absmax"},
  };
  for (const auto& [state, part] : states) {
    INFO(state);
    const Scratch scratch;
    std::vector<TestTensor> tensors = BitsandbytesWeight{}.tensors();
    TestTensor& tensor = tensor_of(tensors, "bitsandbytes__nf4");
    tensor.bytes = state;
    tensor.shape = {static_cast<std::int64_t>(state.size())};
    check_error(ErrorCode::kCorrupt, {"a.weight.quant_state", part}, [&] { opened(scratch, tensors); });
  }
}

TEST_CASE("bitsandbytes: parts that are missing or of another size are corrupt, by name", "[bitsandbytes][hostile]") {
  const BitsandbytesWeight weight{"a.weight", {2, 64}, 32, "nf4", true};
  for (const char* part : {".quant_map", ".absmax", ".nested_absmax", ".nested_quant_map"}) {
    INFO(part);
    const Scratch scratch;
    std::vector<TestTensor> tensors = weight.tensors();
    tensor_of(tensors, part).name = "elsewhere";
    check_error(ErrorCode::kCorrupt, {"a.weight", part, "missing"}, [&] { opened(scratch, tensors); });
    tensors = weight.tensors();
    TestTensor& cut = tensor_of(tensors, part);
    cut.bytes.resize(cut.bytes.size() - (cut.dtype == "U8" ? 1 : 4));
    --cut.shape[0];
    check_error(ErrorCode::kCorrupt, {"a.weight", part, "wanted"}, [&] { opened(scratch, tensors); });
  }
  const Scratch scratch;
  std::vector<TestTensor> tensors = weight.tensors();
  std::string& state = tensor_of(tensors, "bitsandbytes__nf4").name;
  state.replace(state.size() - 3, 3, "fp4");
  check_error(ErrorCode::kUnsupported, {"quant_type", "nf4"}, [&] { opened(scratch, tensors); });
  tensors = weight.tensors();
  tensors.front().name = "b.weight";
  check_error(ErrorCode::kCorrupt, {"\"a.weight\"", "missing"}, [&] { opened(scratch, tensors); });
}

TEST_CASE("bitsandbytes: its own files have its own values", "[bitsandbytes]") {
  for (const char* name : {"bnb-nf4", "bnb-nf4-dq", "bnb-fp4"}) {
    const fs::path peer = shared_data() / "fixtures/peers" / name;
    if (!fs::exists(peer)) HALFBYTE_SKIP(peer.string() + " is not here");
    INFO(name);
    const auto checkpoint = open_checkpoint(peer);
    CHECK(checkpoint.notes.empty());
    const auto expected = open_checkpoint(peer / "expected.safetensors");
    REQUIRE(expected.tensors.size() == 2);
    for (const files::StoredTensor& tensor : expected.tensors) {
      INFO(tensor.name);
      CHECK_FALSE(is_computed(checkpoint, tensor.name));
      // bitsandbytes rounds to the dtype that the weight had, and widens it for the comparison.
      std::vector<float> values = values_of(checkpoint, tensor.name);
      const std::string rounded = floats(values, *record_of(checkpoint, tensor.name).original_dtype);
      quant::convert(reinterpret_cast<const std::byte*>(rounded.data()), Dtype::kBfloat16,
                     reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32, std::ssize(values));
      check_values(values, values_of(expected, tensor.name));
    }
  }
}
