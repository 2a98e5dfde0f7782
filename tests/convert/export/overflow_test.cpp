// A weight that is finite where it is, and would be infinite in a narrower dtype: every way out names it, or keeps it.
#include <cmath>

#include <halfbyte/convert.h>

#include "convert/export/checkpoint.h"
#include "convert/gguf/export.h"
#include "tests/convert/export/exported.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

constexpr float kLarge = 1.0e6F;
constexpr const char* kName = "lm_head.weight";
constexpr int kRow = 3, kColumn = 5;

// One layer of Llama in float32; the head has one large value.
void write_source(const fs::path& path) {
  std::vector<TestTensor> tensors = llama_tensors(true, Dtype::kFloat32);
  TestTensor& head = tensors.back();
  REQUIRE(head.name == kName);
  std::memcpy(head.bytes.data() + (kRow * 32 + kColumn) * sizeof kLarge, &kLarge, sizeof kLarge);
  ordered_json config = llama_config();
  config["torch_dtype"] = "float32";
  write_checkpoint(path, tensors, config);
}

// A packed head of which nothing says what it was: float16 may be assumed. Its value is near kLarge.
void write_packed(const fs::path& source, const fs::path& path, const std::string& scheme) {
  convert::quantize(source, path,
                    {.scheme = scheme, .group_size = 16, .halfbyte_only = true, .scheme_for = {{"lm_head", scheme}}});
  fs::remove(path / "halfbyte.json");
}

float large_of(const fs::path& path) { return numbers_of(files::open_checkpoint(path), kName)[kRow * 32 + kColumn]; }

const std::vector<std::string> kPlace{"\"lm_head.weight\"", "row 3, column 5", "too large for"};

std::vector<std::string> with(const std::string& part) {
  std::vector<std::string> out = kPlace;
  out.push_back(part);
  return out;
}

}  // namespace

TEST_CASE("overflow: a plain checkpoint in each dtype", "[export][overflow]") {
  const Scratch scratch;
  write_source(scratch / "s");
  check_error(ErrorCode::kUnsupported, with("1000000"),
              [&] { convert::dequantize(scratch / "s", scratch / "d", {.dtype = Dtype::kFloat16}); });
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    convert::dequantize(scratch / "s", scratch / "d", {.dtype = dtype, .overwrite = true});
    CHECK(std::abs(large_of(scratch / "d") / kLarge - 1) < 0.01F);
  }
}

namespace {

struct GgufCase {
  const char* type;
  bool holds_it;
};

}  // namespace

TEST_CASE("overflow: GGUF in each type, of a matrix that stays as it is", "[export][overflow]") {
  using Case = GgufCase;
  const Scratch scratch;
  write_source(scratch / "s");
  for (const Case& c : {Case{"F32", true}, Case{"BF16", true}, Case{"Q8_0", true}, Case{"F16", false},
                        Case{"Q4_0", false}, Case{"Q4_1", true}}) {
    INFO(c.type);
    const auto write = [&] {
      convert::export_gguf(scratch / "s", scratch / "m.gguf", {.type = c.type, .overwrite = true});
    };
    // Blocks are for the layers' matrices; a head stays as it is.
    if (std::string(c.type) == "F16") {
      check_error(ErrorCode::kUnsupported, with("1000000"), write);
      continue;
    }
    write();
    CHECK(std::abs(large_of(scratch / "m.gguf") / kLarge - 1) < 0.01F);
  }
}

TEST_CASE("overflow: GGUF in each type, of a matrix in blocks", "[export][overflow]") {
  using Case = GgufCase;
  const Scratch scratch;
  std::vector<TestTensor> tensors = llama_tensors(true, Dtype::kFloat32);
  const std::string name = tensors[2].name;
  for (const Case& c : {Case{"Q8_0", true}, Case{"Q4_0", false}, Case{"Q4_1", false}}) {
    INFO(c.type);
    const float value = -kLarge;
    std::memcpy(tensors[2].bytes.data() + (kRow * 32 + kColumn) * sizeof value, &value, sizeof value);
    write_checkpoint(scratch / "w", tensors, llama_config());
    const auto write = [&] {
      convert::export_gguf(scratch / "w", scratch / "w.gguf", {.type = c.type, .overwrite = true});
    };
    if (!c.holds_it) {
      check_error(ErrorCode::kUnsupported, {name, "-1000000", "row 3, column 5", c.type, "F32 or BF16"}, write);
      CHECK_FALSE(fs::exists(scratch / "w.gguf.partial"));
      continue;
    }
    write();
    for (const float number : numbers_of(files::open_checkpoint(scratch / "w.gguf"), name))
      CHECK(std::isfinite(number));
  }
}

TEST_CASE("overflow: each packed format names a packed tensor that it writes dense", "[export][overflow]") {
  const Scratch scratch;
  write_source(scratch / "s");
  write_packed(scratch / "s", scratch / "q", "sym_int8");
  REQUIRE(std::abs(large_of(scratch / "q") / kLarge - 1) < 0.01F);
  for (const std::string format : {"bitsandbytes", "gptq", "awq"}) {
    INFO(format);
    const auto write = [&](Dtype dtype) {
      convert::export_checkpoint(scratch / "q", scratch / format,
                                 {.format = format, .requantize = true, .overwrite = true, .assume_original = dtype});
    };
    check_error(ErrorCode::kUnsupported, with("float16"), [&] { write(Dtype::kFloat16); });
    CHECK_FALSE(fs::exists(scratch / (format + ".partial")));
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
      write(dtype);
      CHECK(std::abs(large_of(scratch / format) / kLarge - 1) < 0.01F);
    }
  }
}

TEST_CASE("overflow: every format that keeps the codes keeps the value", "[export][overflow]") {
  const Scratch scratch;
  write_source(scratch / "s");
  write_packed(scratch / "s", scratch / "q", "sym_int8");
  convert::export_checkpoint(scratch / "q", scratch / "e",
                             {.format = "compressed-tensors", .assume_original = Dtype::kFloat16});
  CHECK(large_of(scratch / "e") == large_of(scratch / "q"));
  convert::quantize(scratch / "s", scratch / "nf4", {.scheme = "nf4", .scheme_for = {{"lm_head", "nf4"}}});
  convert::export_checkpoint(scratch / "nf4", scratch / "b", {.format = "bitsandbytes"});
  CHECK(large_of(scratch / "b") == large_of(scratch / "nf4"));
  CHECK(std::isfinite(large_of(scratch / "b")));
}

TEST_CASE("overflow: what is quantised again, or dequantised, is named too", "[export][overflow]") {
  const Scratch scratch;
  write_source(scratch / "s");
  write_packed(scratch / "s", scratch / "q", "sym_int8");
  check_error(ErrorCode::kUnsupported, with("float16"), [&] {
    convert::quantize(scratch / "q", scratch / "again", {.assume_original = Dtype::kFloat16, .requantize = true});
  });
  check_error(ErrorCode::kUnsupported, with("float16"),
              [&] { convert::dequantize(scratch / "q", scratch / "plain", {.assume_original = Dtype::kFloat16}); });
  check_error(ErrorCode::kUnsupported, with("F32 or BF16"),
              [&] { convert::export_gguf(scratch / "q", scratch / "m.gguf", {.type = "F16"}); });
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"q", "s"});
}
