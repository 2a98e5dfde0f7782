// Out to compressed-tensors, bitsandbytes, GPTQ and AWQ, and back in.
#include "convert/export_checkpoint.h"

#include <array>
#include <cmath>
#include <map>

#include <halfbyte/convert.h>

#include "loader/files/checkpoint.h"
#include "loader/files/tensor_reader.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

using convert::export_checkpoint;
using files::Checkpoint;
using files::Part;

std::string bytes_of(const Checkpoint& checkpoint, const std::string& name) {
  INFO("tensor: " << name);
  const files::StoredTensor* tensor = checkpoint.find(name);
  REQUIRE(tensor);
  std::string out(tensor->size_bytes, '\0');
  files::read_stored(checkpoint, *tensor, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

struct Stored {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
  bool operator==(const Stored&) const = default;
};

// What lies in a file, not what it is read as.
std::map<std::string, Stored> stored_in(const fs::path& file) {
  const std::string text = read_text(file);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  std::map<std::string, Stored> out;
  const auto header = nlohmann::json::parse(text.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    out[name] = {entry.at("dtype"), entry.at("shape"), text.substr(8 + length + begin, end - begin)};
  }
  return out;
}

std::string words(const std::vector<std::uint32_t>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::uint32_t));
}

std::vector<float> numbers_of(const Checkpoint& checkpoint, const std::string& name) {
  files::TensorReader reader(checkpoint, *checkpoint.manifest.find(name));
  std::vector<float> out(static_cast<std::size_t>(reader.size()));
  reader.read(0, out);
  return out;
}

// Every tensor has the same numbers in both.
void check_same_numbers(const fs::path& a, const fs::path& b) {
  const Checkpoint first = files::open_checkpoint(a), second = files::open_checkpoint(b);
  REQUIRE(first.manifest.tensors.size() == second.manifest.tensors.size());
  for (const files::TensorRecord& record : first.manifest.tensors) {
    INFO("tensor: " << record.name);
    REQUIRE(second.manifest.find(record.name));
    CHECK(second.manifest.find(record.name)->shape == record.shape);
    CHECK((second.manifest.find(record.name)->scheme != nullptr) == (record.scheme != nullptr));
    CHECK(numbers_of(first, record.name) == numbers_of(second, record.name));
  }
}

// What was exported is exported again, as it is and after it was imported.
void check_fixed(const fs::path& exported, const std::string& format) {
  const Scratch scratch;
  convert::repack(exported, scratch / "imported");
  export_checkpoint(scratch / "imported", scratch / "a", {.format = format});
  export_checkpoint(exported, scratch / "b", {.format = format});
  CHECK(contents_of(scratch / "a") == contents_of(exported));
  CHECK(contents_of(scratch / "b") == contents_of(exported));
}

// A weight of compressed-tensors: code + 8 of row n and column k, zero point + 8 of row n and group g.
struct HandMade {
  std::int64_t rows, columns, group_size;
  std::uint32_t (*code)(std::int64_t n, std::int64_t k);
  std::uint32_t (*zero_point)(std::int64_t n, std::int64_t g) = nullptr;
  float (*scale)(std::int64_t n, std::int64_t g);
  std::string scale_dtype = "F16";

  std::int64_t groups() const { return columns / group_size; }

  std::vector<TestTensor> tensors(const std::string& name) const {
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows * columns / 8));
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t k = 0; k < columns; ++k)
        codes[static_cast<std::size_t>((n * columns + k) / 8)] |= code(n, k) << (4 * (k % 8));
    }
    std::vector<float> scales;
    for (std::int64_t i = 0; i < rows * groups(); ++i) scales.push_back(scale(i / groups(), i % groups()));
    const std::int64_t shape[] = {rows, columns};
    std::vector<TestTensor> out{
        {name + "_packed", "I32", {rows, columns / 8}, words(codes)},
        {name + "_scale", scale_dtype, {rows, groups()}, floats(scales, *dtype_from_safetensors(scale_dtype))},
        {name + "_shape", "I64", {2}, std::string(reinterpret_cast<const char*>(shape), sizeof shape)}};
    if (zero_point) out.push_back({name + "_zero_point", "I32", {rows / 8, groups()}, words(zero_words())});
    return out;
  }

  std::vector<std::uint32_t> zero_words() const {
    std::vector<std::uint32_t> out(static_cast<std::size_t>(rows / 8 * groups()));
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t g = 0; g < groups(); ++g)
        out[static_cast<std::size_t>(n / 8 * groups() + g)] |= zero_point(n, g) << (4 * (n % 8));
    }
    return out;
  }

  ordered_json group() const {
    return {{"targets", {"Linear"}},
            {"weights",
             {{"num_bits", 4},
              {"type", "int"},
              {"symmetric", zero_point == nullptr},
              {"strategy", "group"},
              {"group_size", group_size}}}};
  }
};

std::uint32_t code_of(std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>((n + 3 * k) % 16); }
float scale_of(std::int64_t n, std::int64_t g) { return static_cast<float>(n + 1) / static_cast<float>(16 << g % 8); }

void write_hand_made(const fs::path& directory, const std::vector<std::pair<std::string, HandMade>>& weights) {
  std::vector<TestTensor> tensors{float_tensor("norm.weight", {16})};
  ordered_json groups = ordered_json::object();
  for (const auto& [name, weight] : weights) {
    for (TestTensor& tensor : weight.tensors(name)) tensors.push_back(std::move(tensor));
    groups["group_" + std::to_string(groups.size())] = weight.group();
  }
  write_text(directory / "model.safetensors", safetensors(tensors));
  const ordered_json config{{"model_type", "foo"},
                            {"quantization_config",
                             {{"quant_method", "compressed-tensors"},
                              {"format", "pack-quantized"},
                              {"quantization_status", "compressed"},
                              {"config_groups", groups}}},
                            {"dtype", "bfloat16"}};
  write_text(directory / "config.json", config.dump());
}

fs::path tiny() { return test_data() / "tiny-llama"; }

nlohmann::json quantization_of(const fs::path& directory) {
  return nlohmann::json::parse(read_text(directory / "config.json")).at("quantization_config");
}

}  // namespace

TEST_CASE("export: GPTQ's and AWQ's words, by hand", "[export]") {
  const Scratch scratch;
  const HandMade weight{
      .rows = 16,
      .columns = 16,
      .group_size = 8,
      .code = code_of,
      .zero_point = [](std::int64_t n, std::int64_t g) { return static_cast<std::uint32_t>(1 + (n + g) % 15); },
      .scale = scale_of};
  write_hand_made(scratch / "s", {{"a.weight", weight}});

  const auto summary = export_checkpoint(scratch / "s", scratch / "gptq", {.format = "gptq"});
  CHECK(summary.exact_tensors == 1);
  CHECK(names_in(scratch / "gptq") ==
        std::vector<std::string>{"config.json", "model.safetensors", "quantize_config.json"});
  std::vector<std::uint32_t> codes(2 * 16), zeros(2 * 2), groups;
  std::vector<float> scales(2 * 16);
  for (std::size_t n = 0; n < 16; ++n) {
    for (std::size_t k = 0; k < 16; ++k)
      codes[k / 8 * 16 + n] |= static_cast<std::uint32_t>((n + 3 * k) % 16) << (4 * (k % 8));
    for (std::size_t g = 0; g < 2; ++g) {
      zeros[g * 2 + n / 8] |= static_cast<std::uint32_t>((n + g) % 15) << (4 * (n % 8));  // less one
      scales[g * 16 + n] = scale_of(static_cast<std::int64_t>(n), static_cast<std::int64_t>(g));
    }
  }
  CHECK(codes[0] == 0x52FC9630U);
  for (std::uint32_t k = 0; k < 16; ++k) groups.push_back(k / 8);
  auto in_gptq = stored_in(scratch / "gptq" / "model.safetensors");
  CHECK((in_gptq["a.qweight"] == Stored{"I32", {2, 16}, words(codes)}));
  CHECK((in_gptq["a.qzeros"] == Stored{"I32", {2, 2}, words(zeros)}));
  CHECK((in_gptq["a.scales"] == Stored{"F16", {2, 16}, floats(scales, Dtype::kFloat16)}));
  CHECK((in_gptq["a.g_idx"] == Stored{"I32", {16}, words(groups)}));

  export_checkpoint(scratch / "s", scratch / "awq", {.format = "awq"});
  constexpr std::array<std::size_t, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<std::uint32_t> awq_codes(16 * 2), awq_zeros(2 * 2);
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t n = 8 * c + kOrder[i];
      for (std::size_t k = 0; k < 16; ++k)
        awq_codes[k * 2 + c] |= static_cast<std::uint32_t>((n + 3 * k) % 16) << (4 * i);
      for (std::size_t g = 0; g < 2; ++g)
        awq_zeros[g * 2 + c] |= static_cast<std::uint32_t>(1 + (n + g) % 15) << (4 * i);
    }
  }
  CHECK(awq_codes[0] == 0x75316420U);
  auto in_awq = stored_in(scratch / "awq" / "model.safetensors");
  CHECK((in_awq["a.qweight"] == Stored{"I32", {16, 2}, words(awq_codes)}));
  CHECK((in_awq["a.qzeros"] == Stored{"I32", {2, 2}, words(awq_zeros)}));
  CHECK((in_awq["a.scales"] == Stored{"F16", {2, 16}, floats(scales, Dtype::kFloat16)}));

  const auto config = nlohmann::json::parse(read_text(scratch / "gptq" / "config.json"));
  CHECK(config.at("dtype") == "float16");
  CHECK(config.at("quantization_config") == nlohmann::json({{"quant_method", "gptq"},
                                                            {"bits", 4},
                                                            {"group_size", 8},
                                                            {"desc_act", false},
                                                            {"sym", false},
                                                            {"lm_head", false},
                                                            {"checkpoint_format", "gptq"},
                                                            {"pack_dtype", "int32"}}));
  CHECK(nlohmann::json::parse(read_text(scratch / "gptq" / "quantize_config.json")) ==
        config.at("quantization_config"));
  for (const char* format : {"gptq", "awq", "compressed-tensors"}) {
    INFO(format);
    export_checkpoint(scratch / "s", scratch / format, {.format = format, .overwrite = true});
    check_same_numbers(scratch / "s", scratch / format);
    check_fixed(scratch / format, format);
  }
}

TEST_CASE("export: the same numbers, and a fixed point, of each scheme that a format has", "[export]") {
  struct Case {
    const char* format;
    const char* scheme;
    std::int64_t group_size;
    bool nested;
  };
  for (const Case& c :
       {Case{"compressed-tensors", "sym_int4", 64, false}, Case{"compressed-tensors", "asym_int4", 32, false},
        Case{"compressed-tensors", "sym_int8", 0, false}, Case{"bitsandbytes", "nf4", 64, false},
        Case{"bitsandbytes", "fp4", 32, false}, Case{"bitsandbytes", "nf4", 64, true},
        Case{"gptq", "sym_int4", 64, false}, Case{"gptq", "asym_int4", 32, false}, Case{"gptq", "sym_int8", 64, false},
        Case{"gptq", "sym_int4", 0, false}, Case{"awq", "sym_int4", 16, false}, Case{"awq", "asym_int4", 64, false}}) {
    INFO(c.format << " " << c.scheme << " " << c.group_size);
    const Scratch scratch;
    convert::quantize(tiny(), scratch / "q",
                      {.scheme = c.scheme,
                       .group_size = c.group_size,
                       .nested_scales = c.nested,
                       .keep = {"model.layers.1.self_attn"}});
    const auto summary = export_checkpoint(scratch / "q", scratch / "e", {.format = c.format});
    CHECK(summary.exact_tensors == 24);
    CHECK(summary.rounded_tensors + summary.requantized_tensors + summary.dequantized_tensors == 0);
    CHECK_FALSE(fs::exists(scratch / "e" / "halfbyte.json"));
    CHECK(fs::exists(scratch / "e" / "tokenizer.model"));
    check_same_numbers(scratch / "q", scratch / "e");
    check_fixed(scratch / "e", c.format);
  }
}

TEST_CASE("export: files of other programs come out with the tensors that they had", "[export]") {
  const std::pair<const char*, const char*> peers[] = {
      {"ct-g64", "compressed-tensors"}, {"gptq-sym-g64", "gptq"},       {"gptq-asym-g64", "gptq"},  {"awq-g64", "awq"},
      {"bnb-nf4", "bitsandbytes"},      {"bnb-nf4-dq", "bitsandbytes"}, {"bnb-fp4", "bitsandbytes"}};
  for (const auto& [peer, format] : peers) {
    INFO(peer);
    const fs::path source = shared_data() / "fixtures" / "peers" / peer;
    if (!fs::exists(source)) HALFBYTE_SKIP(source.string() + " is not here");
    const Scratch scratch;
    export_checkpoint(source, scratch / "e", {.format = format});
    check_same_numbers(source, scratch / "e");
    check_fixed(scratch / "e", format);
    CHECK((stored_in(source / "model.safetensors") == stored_in(scratch / "e" / "model.safetensors")));
  }
}

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
          first + "nf4, groups of 64): GPTQ has no nf4; --requantize quantises it again, as sym_int4");
  refused({.scheme = "nf4"}, "compressed-tensors", "--to bitsandbytes keeps its numbers");
  refused({.scheme = "sym_int4"}, "bitsandbytes", "--to compressed-tensors keeps its numbers");
  refused({.scheme_for = {{"*down_proj*", "sym_int8"}}}, "gptq", "GPTQ has one number of bits for all tensors");
  refused({.scheme_for = {{"lm_head", "sym_int4"}}}, "gptq",
          "\"lm_head.weight\" (sym_int4, groups of 64): transformers looks for no");
  refused({.scheme_for = {{"lm_head", "sym_int4"}}}, "awq", "--requantize writes it dense, as bfloat16");
  refused({.scheme = "sym_int8"}, "awq", "AWQ has no sym_int8");
  CHECK_THROWS_WITH(export_checkpoint(tiny(), scratch / "e", {.format = "gptq"}),
                    Catch::Contains("nothing in it is quantised; first `halfbyte quantize"));
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
                        Catch::Contains("--requantize rounds its scales"));
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

TEST_CASE("export: a zero point of code 0 makes GPTQ's second version", "[export]") {
  const Scratch scratch;
  HandMade weight{
      .rows = 8,
      .columns = 16,
      .group_size = 8,
      .code = code_of,
      .zero_point = [](std::int64_t n, std::int64_t g) -> std::uint32_t { return n == 6 && g == 1 ? 0 : 15; },
      .scale = scale_of};
  write_hand_made(scratch / "s", {{"a.weight", weight}});
  export_checkpoint(scratch / "s", scratch / "e", {.format = "gptq"});
  CHECK(quantization_of(scratch / "e").at("checkpoint_format") == "gptq_v2");
  check_same_numbers(scratch / "s", scratch / "e");
  check_fixed(scratch / "e", "gptq");
  export_checkpoint(scratch / "s", scratch / "awq", {.format = "awq"});
  check_same_numbers(scratch / "s", scratch / "awq");
}

TEST_CASE("export: groups of several sizes are all of the smallest, one scale a row of whole rows", "[export]") {
  const Scratch scratch;
  const HandMade small{.rows = 8, .columns = 48, .group_size = 16, .code = code_of, .scale = scale_of};
  HandMade large = small;
  large.columns = 64;
  large.group_size = 32;
  large.zero_point = [](std::int64_t n, std::int64_t g) { return static_cast<std::uint32_t>(1 + (n + 5 * g) % 15); };
  write_hand_made(scratch / "s", {{"a.weight", small}, {"b.weight", large}});
  for (const char* format : {"gptq", "awq"}) {
    INFO(format);
    CHECK(export_checkpoint(scratch / "s", scratch / format, {.format = format}).exact_tensors == 2);
    CHECK(quantization_of(scratch / format).at("group_size") == 16);
    check_same_numbers(scratch / "s", scratch / format);
    check_fixed(scratch / format, format);
  }
  CHECK(quantization_of(scratch / "gptq").at("sym") == false);
  HandMade rows = small, other_rows = large;
  rows.group_size = 48;
  other_rows.group_size = 64;
  write_hand_made(scratch / "r", {{"a.weight", rows}, {"b.weight", other_rows}});
  export_checkpoint(scratch / "r", scratch / "er", {.format = "gptq"});
  CHECK(quantization_of(scratch / "er").at("group_size") == -1);
  check_same_numbers(scratch / "r", scratch / "er");
  check_fixed(scratch / "er", "gptq");
}

TEST_CASE("export: a tensor of several pieces", "[export]") {
  const Scratch scratch;
  const HandMade weight{.rows = 136, .columns = 262144, .group_size = 65536, .code = code_of, .scale = scale_of};
  write_hand_made(scratch / "s", {{"a.weight", weight}});
  const Checkpoint source = files::open_checkpoint(scratch / "s");
  for (const char* format : {"gptq", "awq"}) {
    INFO(format);
    std::uint64_t last = 0, total = 0;
    export_checkpoint(scratch / "s", scratch / format,
                      {.format = format, .progress = [&](std::uint64_t done, std::uint64_t all) {
                         CHECK(done >= last);
                         last = done;
                         total = all;
                       }});
    CHECK(last == total);
    const Checkpoint exported = files::open_checkpoint(scratch / format);
    for (const char* part : {"a.weight_packed", "a.weight_scale"})
      CHECK((bytes_of(source, part) == bytes_of(exported, part)));
  }
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
