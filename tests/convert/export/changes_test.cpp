// What a format cannot say: refused by name, or changed when that is asked for.
#include <cmath>

#include "tests/convert/export/exported.h"
#include "tests/loader/files/methods/bitsandbytes_source.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::export_checkpoint;
using files::Checkpoint;
using files::Part;

TEST_CASE("export: what a format cannot say is refused by name, and nothing is left", "[export]") {
  const Scratch scratch;
  const auto refused = [&](const convert::QuantizeOptions& options, const std::string& format, const std::string& why) {
    INFO(format << ": " << why);
    convert::quantize(tiny(), scratch / "q", options);
    CHECK_THROWS_WITH(export_checkpoint(scratch / "q", scratch / "e", {.format = format}), Catch::Contains(why));
    CHECK(names_in(scratch.path()) == std::vector<std::string>{"q"});
    fs::remove_all(scratch / "q");
  };
  const std::string first = "\"model.layers.0.mlp.down_proj.weight\" (";
  refused({.scheme = "nf4"}, "gptq",
          first + "nf4, groups of 64): GPTQ has no nf4; requantize quantises it again, as sym_int4");
  refused({.scheme = "nf4"}, "compressed-tensors", "; format bitsandbytes keeps its numbers");
  refused({.scheme = "sym_int4"}, "bitsandbytes", "; format compressed-tensors keeps its numbers");
  refused({.scheme_for = {{"*down_proj*", "sym_int8"}}}, "gptq", "GPTQ has one number of bits for all tensors");
  refused({.scheme_for = {{"lm_head", "sym_int4"}}}, "gptq",
          "\"lm_head.weight\" (sym_int4, groups of 64): transformers looks for no");
  refused({.scheme_for = {{"lm_head", "sym_int4"}}}, "awq", "; requantize writes it dense, as bfloat16");
  refused({.scheme = "sym_int8"}, "awq", "AWQ has no sym_int8");
  CHECK_THROWS_WITH(export_checkpoint(tiny(), scratch / "e", {.format = "gptq"}),
                    Catch::Contains("nothing in it is quantised; first `quantize("));
  CHECK_THROWS_WITH(export_checkpoint(tiny(), scratch / "e", {.format = "onnx"}),
                    Catch::Contains("known are compressed-tensors, bitsandbytes, gptq, awq"));
  convert::quantize(tiny(), scratch / "q", {});
  CHECK_THROWS_WITH(export_checkpoint(scratch / "q", scratch / "q" / "e", {.format = "gptq"}),
                    Catch::Contains("within"));
  export_checkpoint(scratch / "q", scratch / "e", {.format = "gptq"});
  CHECK_THROWS_AS(export_checkpoint(scratch / "q", scratch / "e", {.format = "gptq"}), Error);
  std::stop_source stopped;
  stopped.request_stop();
  CHECK_THROWS_WITH(export_checkpoint(scratch / "q", scratch / "s", {.format = "awq", .stop = stopped.get_token()}),
                    Catch::Contains("stopped"));
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"e", "q"});
}

TEST_CASE("export: scales that float16 does not hold are rounded on demand, those above it never", "[export]") {
  const Scratch scratch;
  HandMade weight{.rows = 8,
                  .columns = 16,
                  .group_size = 16,
                  .code = code_of,
                  .scale = [](std::int64_t n, std::int64_t) { return n == 5 ? 3.0e-7F : 0.25F; },
                  .scale_dtype = "BF16"};
  write_hand_made(scratch / "s", {{"a.weight", weight}});
  CHECK_THROWS_WITH(export_checkpoint(scratch / "s", scratch / "e", {.format = "gptq"}),
                    Catch::Contains("\"a.weight\"") && Catch::Contains("e-07 is no float16 number") &&
                        Catch::Contains("; requantize rounds its scales"));
  const auto summary = export_checkpoint(scratch / "s", scratch / "e", {.format = "gptq", .requantize = true});
  CHECK(summary.rounded_tensors == 1);
  CHECK(summary.exact_tensors == 0);
  const auto before = numbers_of(files::open_checkpoint(scratch / "s"), "a.weight");
  const auto after = numbers_of(files::open_checkpoint(scratch / "e"), "a.weight");
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i / 16 != 5) CHECK(before[i] == after[i]);
    if (i / 16 == 5) CHECK(std::abs(before[i] - after[i]) <= 0.2F * std::abs(before[i]));
  }
  CHECK(before != after);
  check_fixed(scratch / "e", "gptq");
  weight.scale = [](std::int64_t, std::int64_t) { return 1.0e6F; };
  write_hand_made(scratch / "large", {{"a.weight", weight}});
  CHECK_THROWS_WITH(export_checkpoint(scratch / "large", scratch / "l", {.format = "awq", .requantize = true}),
                    Catch::Contains("too large for float16"));
  weight.scale = [](std::int64_t, std::int64_t) { return std::nanf(""); };
  write_hand_made(scratch / "nan", {{"a.weight", weight}});
  CHECK_THROWS_WITH(export_checkpoint(scratch / "nan", scratch / "l", {.format = "awq"}),
                    Catch::Contains("not finite"));
}

TEST_CASE("export: nested scales beside plain ones are written out", "[export]") {
  const Scratch scratch;
  convert::quantize(tiny(), scratch / "nested", {.scheme = "nf4", .nested_scales = true, .keep = {"model.layers.1"}});
  // The second half comes from a checkpoint without nesting.
  convert::quantize(tiny(), scratch / "plain",
                    {.scheme = "nf4", .keep = {"model.layers.0", "model.layers.2", "model.layers.3"}});
  const Checkpoint nested = files::open_checkpoint(scratch / "nested"),
                   plain = files::open_checkpoint(scratch / "plain");
  std::vector<TestTensor> tensors;
  const auto take = [&](const Checkpoint& from, bool is_of_layer_1) {
    for (const files::StoredTensor& tensor : from.tensors) {
      if (tensor.name.starts_with("model.layers.1.") == is_of_layer_1)
        tensors.push_back(
            {tensor.name, std::string(info(tensor.dtype).safetensors), tensor.shape, bytes_of(from, tensor.name)});
    }
  };
  take(nested, false);
  take(plain, true);
  write_text(scratch / "s" / "model.safetensors", safetensors(tensors));
  write_text(scratch / "s" / "config.json", read_text(scratch / "plain" / "config.json"));
  export_checkpoint(scratch / "s", scratch / "e", {.format = "bitsandbytes"});
  CHECK(quantization_of(scratch / "e").at("bnb_4bit_use_double_quant") == false);
  check_same_numbers(scratch / "s", scratch / "e");
  check_fixed(scratch / "e", "bitsandbytes");
}

TEST_CASE("export: with requantize, the same codes as quantising the values, and a head stays dense", "[export]") {
  const Scratch scratch;
  convert::quantize(tiny(), scratch / "q", {.scheme = "sym_int8", .scheme_for = {{"lm_head", "sym_int8"}}});
  struct Case {
    const char* format;
    const char* scheme;
  };
  for (const Case& c : {Case{"bitsandbytes", "nf4"}, Case{"awq", "sym_int4"}}) {
    INFO(c.format);
    const auto summary = export_checkpoint(scratch / "q", scratch / c.format, {.format = c.format, .requantize = true});
    CHECK(summary.requantized_tensors == 28);
    CHECK(summary.dequantized_tensors == 1);
    CHECK(summary.rel_rmse > 0.05);
    CHECK(summary.rel_rmse < 0.12);
    CHECK_FALSE(summary.notes.empty());
    convert::dequantize(scratch / "q", scratch / "plain", {.dtype = Dtype::kFloat32, .overwrite = true});
    convert::quantize(scratch / "plain", scratch / "wanted", {.scheme = c.scheme, .overwrite = true});
    const Checkpoint wanted = files::open_checkpoint(scratch / "wanted"),
                     found = files::open_checkpoint(scratch / c.format);
    for (const files::TensorRecord& record : wanted.manifest.tensors) {
      if (!record.scheme) continue;
      INFO("tensor: " << record.name);
      const files::TensorRecord* other = found.manifest.find(record.name);
      REQUIRE(other);
      for (const Part part : {Part::kCodes, Part::kScale})
        CHECK(bytes_of(wanted, record.parts[part]) == bytes_of(found, other->parts[part]));
    }
    CHECK(found.manifest.find("lm_head.weight")->stored_dtype == Dtype::kBfloat16);
    check_fixed(scratch / c.format, c.format);
  }
}

TEST_CASE("export: what is written dense has the dtype on record, or the one that is assumed", "[export]") {
  const Scratch scratch;
  HandMade weight{.rows = 8, .columns = 16, .group_size = 16, .code = code_of, .scale = scale_of};
  HandMade narrow = weight;
  narrow.rows = 4;
  write_hand_made(scratch / "s", {{"a.weight", weight}, {"b.weight", narrow}});
  CHECK_THROWS_WITH(
      export_checkpoint(scratch / "s", scratch / "e", {.format = "gptq"}),
      Catch::Contains("out_features 4 is no multiple of 8") && Catch::Contains("what assume_original says"));
  for (const std::optional<Dtype> dtype : {std::optional<Dtype>(), std::optional(Dtype::kBfloat16)}) {
    const auto summary =
        export_checkpoint(scratch / "s", scratch / "e",
                          {.format = "gptq", .requantize = true, .overwrite = true, .assume_original = dtype});
    CHECK(summary.exact_tensors == 1);
    CHECK(summary.dequantized_tensors == 1);
    const Checkpoint found = files::open_checkpoint(scratch / "e");
    CHECK(found.manifest.find("b.weight")->stored_dtype == dtype.value_or(Dtype::kFloat32));
    if (!dtype) CHECK(numbers_of(found, "b.weight") == numbers_of(files::open_checkpoint(scratch / "s"), "b.weight"));
    CHECK(quantization_of(scratch / "e").at("dynamic").contains("-:^b$"));
    CHECK(quantization_of(scratch / "e").at("modules_in_block_to_quantize") == nlohmann::json({{"a"}}));
  }
}

TEST_CASE("export: blocks that bitsandbytes has not are no longer its own", "[export]") {
  const Scratch scratch;
  const BitsandbytesWeight crossing{
      .name = "a.weight", .shape = {4, 48}, .block_size = 64};  // groups of 16 end with rows
  std::vector<TestTensor> tensors = crossing.tensors();
  for (TestTensor& tensor : BitsandbytesWeight{.name = "b.weight"}.tensors()) tensors.push_back(std::move(tensor));
  write_text(scratch / "s" / "model.safetensors", safetensors(tensors));
  write_text(scratch / "s" / "config.json", bitsandbytes_config().dump());
  CHECK_THROWS_WITH(export_checkpoint(scratch / "s", scratch / "e", {.format = "bitsandbytes"}),
                    Catch::Contains("bitsandbytes has no blocks of 16; requantize writes it dense"));
  const auto summary = export_checkpoint(scratch / "s", scratch / "e", {.format = "bitsandbytes", .requantize = true});
  CHECK(summary.exact_tensors == 1);
  CHECK(summary.dequantized_tensors == 1);
  const Checkpoint source = files::open_checkpoint(scratch / "s"), found = files::open_checkpoint(scratch / "e");
  CHECK(numbers_of(source, "b.weight") == numbers_of(found, "b.weight"));
}
