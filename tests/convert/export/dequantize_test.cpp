// A plain checkpoint comes back: dtypes, names, shapes, configuration, and values as far as the manifest says.
#include <cmath>
#include <limits>

#include <halfbyte/convert.h>

#include "loader/files/checkpoint.h"
#include "loader/files/difference.h"
#include "loader/files/tensor_reader.h"
#include "tests/loader/files/methods/bitsandbytes_source.h"
#include "tests/loader/files/packed_checkpoint.h"
#include "tests/loader/files/read_values.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

// Half a unit in the last place, relative to the value: what rounding to a dtype adds at most.
double rounding_of(Dtype dtype) {
  return dtype == Dtype::kBfloat16 ? std::ldexp(1, -9) : dtype == Dtype::kFloat16 ? std::ldexp(1, -12) : 0;
}

// A Linear in each weight dtype, and what is no weight.
std::vector<TestTensor> mixed_tensors() {
  std::vector<TestTensor> out;
  const Dtype dtypes[] = {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16};
  for (const Dtype dtype : dtypes) {
    const std::string dtype_name(name(dtype));
    out.push_back(float_tensor("layers." + dtype_name + ".proj.weight", {48, 128}, dtype));
    out.push_back(float_tensor("layers." + dtype_name + ".norm.weight", {7}, dtype));
  }
  out.push_back({"steps", "I64", {}, "01234567"});
  out.push_back({"wide", "F64", {2}, std::string(16, '\x3f')});
  out.push_back({"mask", "BOOL", {3}, std::string(3, '\1')});
  return out;
}

void check_dtypes(const files::Checkpoint& original, const files::Checkpoint& result) {
  REQUIRE(result.tensors.size() == original.tensors.size());
  for (const files::StoredTensor& wanted : original.tensors) {
    INFO(wanted.name);
    const files::StoredTensor* found = result.find(wanted.name);
    REQUIRE(found != nullptr);
    CHECK(name(found->dtype) == name(wanted.dtype));
    CHECK(found->shape == wanted.shape);
    const auto alignment = std::min<std::uint64_t>(64, wanted.size_bytes & (~wanted.size_bytes + 1));
    CHECK(found->offset % std::max<std::uint64_t>(1, alignment) == 0);
  }
}

}  // namespace

TEST_CASE("dequantize: every tensor has its recorded dtype, and the error that the manifest says", "[dequantize]") {
  for (const char* scheme : {"sym_int8", "sym_int4"}) {
    INFO(scheme);
    const Scratch scratch;
    write_checkpoint(scratch / "original", mixed_tensors(), {{"model_type", "unheard_of"}});
    convert::quantize(scratch / "original", scratch / "packed", {.scheme = scheme});
    const auto summary = convert::dequantize(scratch / "packed", scratch / "plain");
    CHECK(summary.dequantized_tensors == 3);
    CHECK(summary.copied_tensors == 6);
    CHECK(summary.cast_tensors == 0);
    const auto original = open_checkpoint(scratch / "original");
    const auto packed = open_checkpoint(scratch / "packed");
    const auto plain = open_checkpoint(scratch / "plain");
    CHECK(plain.manifest.is_derived);
    CHECK(summary.result_bytes == plain.size_bytes);
    check_dtypes(original, plain);
    for (const auto& row : files::compare(plain, original, [](std::uint64_t) {})) {
      INFO(row.tensor);
      const files::TensorRecord& record = *packed.manifest.find(row.tensor);
      if (!record.scheme) {
        CHECK(row.match == files::Match::kSameBytes);
        continue;
      }
      const double rounding = rounding_of(*record.original_dtype);
      CHECK(row.rel_rmse > record.error->rel_rmse - rounding - 1e-6);
      CHECK(row.rel_rmse < record.error->rel_rmse + rounding + 1e-6);
      // The weights are within one half, and so are their codes.
      CHECK(row.max_abs < record.error->max_abs + rounding + 1e-6);
      CHECK(row.max_abs > 0);
    }
  }
}

TEST_CASE("dequantize: packed values are rounded once", "[dequantize]") {
  const Scratch scratch;
  auto manifest = packed_manifest();
  write_packed_checkpoint(scratch / "m", manifest);
  convert::dequantize(scratch / "m", scratch / "bf16");
  std::vector<float> wanted;
  for (int code = -8; code < 8; ++code) wanted.push_back(static_cast<float>(code));
  for (int code = -8; code < 8; ++code) wanted.push_back(0.5F * static_cast<float>(code));
  wanted.resize(64, 0.0F);
  const auto result = open_checkpoint(scratch / "bf16");
  CHECK(values_of(result, "a.weight") == wanted);
  CHECK(name(result.find("a.weight")->dtype) == "bfloat16");
  CHECK(name(result.find("n.weight")->dtype) == "float32");
}

TEST_CASE("dequantize: one dtype for all, said in config.json where it was said", "[dequantize]") {
  const Scratch scratch;
  auto config = llama_config();
  write_checkpoint(scratch / "old", llama_tensors(), config);
  config.erase("torch_dtype");
  config["dtype"] = "bfloat16";
  write_checkpoint(scratch / "new", llama_tensors(), config);
  for (const auto& [source, key] : {std::pair("old", "torch_dtype"), std::pair("new", "dtype")}) {
    INFO(source);
    convert::quantize(scratch / source, scratch / "packed", {.group_size = 16, .overwrite = true});
    convert::dequantize(scratch / "packed", scratch / "float32", {.dtype = Dtype::kFloat32, .overwrite = true});
    const auto result = open_checkpoint(scratch / "float32");
    CHECK((*result.config)[key] == "float32");
    CHECK(result.config->size() == config.size());
    for (const auto& tensor : result.tensors) CHECK(name(tensor.dtype) == "float32");
    convert::dequantize(scratch / "packed", scratch / "recorded", {.overwrite = true});
    CHECK(*open_checkpoint(scratch / "recorded").config == *open_checkpoint(scratch / source).config);
  }
}

TEST_CASE("dequantize: an original is copied, or cast", "[dequantize]") {
  const Scratch scratch;
  write_checkpoint(scratch / "o", mixed_tensors());
  const auto copied = convert::dequantize(scratch / "o", scratch / "copy");
  CHECK(copied.copied_tensors == 9);
  const auto original = open_checkpoint(scratch / "o");
  const auto copy = open_checkpoint(scratch / "copy");
  for (const auto& row : files::compare(copy, original, [](std::uint64_t) {}))
    CHECK(row.match == files::Match::kSameBytes);
  const auto cast = convert::dequantize(scratch / "o", scratch / "cast", {.dtype = Dtype::kFloat16});
  CHECK(cast.cast_tensors == 4);
  CHECK(cast.copied_tensors == 5);
  REQUIRE(cast.notes.size() == 1);
  CHECK(cast.notes[0].str().find("1 tensor of other floating dtypes") != std::string::npos);
}

TEST_CASE("dequantize: what does not fit is named, infinities stay", "[dequantize]") {
  const Scratch scratch;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto write = [&](float value) {
    write_checkpoint(scratch / "o", {{"mask", "F32", {2, 3}, floats({0, 1, kInfinity, 2, value, 3}, Dtype::kFloat32)}});
  };
  write(65519.0F);  // the last float32 that rounds to 65504
  convert::dequantize(scratch / "o", scratch / "f16", {.dtype = Dtype::kFloat16});
  CHECK(values_of(open_checkpoint(scratch / "f16"), "mask") == std::vector<float>{0, 1, kInfinity, 2, 65504, 3});
  write(65520.0F);
  check_error(ErrorCode::kUnsupported,
              {"\"mask\"", "row 1, column 1", "65520", "float16", "give dtype float32 or bfloat16"},
              [&] { convert::dequantize(scratch / "o", scratch / "x", {.dtype = Dtype::kFloat16}); });
  write(std::numeric_limits<float>::max());
  check_error(ErrorCode::kUnsupported, {"\"mask\"", "bfloat16"},
              [&] { convert::dequantize(scratch / "o", scratch / "x", {.dtype = Dtype::kBfloat16}); });
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"f16", "o"});
}

TEST_CASE("dequantize: an unknown original dtype becomes float32, and is told", "[dequantize]") {
  const Scratch scratch;
  auto manifest = packed_manifest();
  manifest.tensors[0].original_dtype.reset();
  write_packed_checkpoint(scratch / "m", manifest);
  const auto summary = convert::dequantize(scratch / "m", scratch / "f32");
  CHECK(name(open_checkpoint(scratch / "f32").find("a.weight")->dtype) == "float32");
  REQUIRE_FALSE(summary.notes.empty());
  CHECK(summary.notes.back().str().find("original dtype of 1 tensor is not on record") != std::string::npos);
}

TEST_CASE("dequantize: no side file calls the result quantised", "[dequantize]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  write_text(scratch / "m" / "quantize_config.json", "{}");
  write_text(scratch / "m" / "tokenizer.json", "{}");
  const auto summary = convert::dequantize(scratch / "m", scratch / "plain");
  CHECK(names_in(scratch / "plain") == std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json"});
  REQUIRE_FALSE(summary.notes.empty());
  CHECK(summary.notes[0].str().find("quantize_config.json") != std::string::npos);
}

TEST_CASE("dequantize: tied aliases are left out, threads change nothing", "[dequantize]") {
  const Scratch scratch;
  write_checkpoint(scratch / "o", llama_tensors(false), llama_config(true));
  convert::quantize(scratch / "o", scratch / "m", {.group_size = 16});
  convert::dequantize(scratch / "m", scratch / "one", {.threads = 1});
  convert::dequantize(scratch / "m", scratch / "three", {.threads = 3});
  CHECK(open_checkpoint(scratch / "one").find("lm_head.weight") == nullptr);
  CHECK(contents_of(scratch / "one") == contents_of(scratch / "three"));
}

TEST_CASE("dequantize: wrong calls and stops leave nothing", "[dequantize]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  check_error(ErrorCode::kInvalidArgument, {"int8"},
              [&] { convert::dequantize(scratch / "m", scratch / "x", {.dtype = Dtype::kInt8}); });
  check_error(ErrorCode::kInvalidArgument, {"lie within each other"},
              [&] { convert::dequantize(scratch / "m", scratch / "m" / "x"); });
  check_error(ErrorCode::kInvalidArgument, {"threads"},
              [&] { convert::dequantize(scratch / "m", scratch / "x", {.threads = -1}); });
  std::stop_source stop;
  stop.request_stop();
  check_error(ErrorCode::kInterrupted, {"stopped"},
              [&] { convert::dequantize(scratch / "m", scratch / "x", {.stop = stop.get_token()}); });
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"m"});
}

TEST_CASE("dequantize: bitsandbytes's values are those that it rounds to itself, in every dtype", "[dequantize]") {
  const Scratch scratch;
  const BitsandbytesWeight weight;  // of bfloat16
  write_checkpoint(scratch / "bnb", weight.tensors(), bitsandbytes_config());
  convert::dequantize(scratch / "bnb", scratch / "own");
  convert::dequantize(scratch / "bnb", scratch / "wide", {.dtype = Dtype::kFloat32});
  const std::vector<float> own = values_of(open_checkpoint(scratch / "own"), weight.name);
  CHECK(values_of(open_checkpoint(scratch / "wide"), weight.name) == own);
  CHECK(own != weight.wanted());
}
