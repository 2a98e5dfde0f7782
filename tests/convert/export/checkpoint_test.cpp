// Out to compressed-tensors, bitsandbytes, GPTQ and AWQ, and back in: the same numbers and the same bytes.
#include <array>
#include <map>

#include "tests/convert/export/exported.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::export_checkpoint;
using files::Checkpoint;

namespace {

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

// 16 rows of 16 in groups of 8, with zero points.
void write_sixteen(const fs::path& directory) {
  const HandMade weight{
      .rows = 16,
      .columns = 16,
      .group_size = 8,
      .code = code_of,
      .zero_point = [](std::int64_t n, std::int64_t g) { return static_cast<std::uint32_t>(1 + (n + g) % 15); },
      .scale = scale_of};
  write_hand_made(directory, {{"a.weight", weight}});
}

std::string sixteens_scales() {
  std::vector<float> scales(2 * 16);
  for (std::size_t n = 0; n < 16; ++n) {
    for (std::size_t g = 0; g < 2; ++g)
      scales[g * 16 + n] = scale_of(static_cast<std::int64_t>(n), static_cast<std::int64_t>(g));
  }
  return floats(scales, Dtype::kFloat16);
}

}  // namespace

TEST_CASE("export: GPTQ's words, by hand", "[export]") {
  const Scratch scratch;
  write_sixteen(scratch / "s");
  const auto summary = export_checkpoint(scratch / "s", scratch / "gptq", {.format = "gptq"});
  CHECK(summary.exact_tensors == 1);
  CHECK(names_in(scratch / "gptq") ==
        std::vector<std::string>{"config.json", "model.safetensors", "quantize_config.json"});
  std::vector<std::uint32_t> codes(2 * 16), zeros(2 * 2), groups;
  for (std::size_t n = 0; n < 16; ++n) {
    for (std::size_t k = 0; k < 16; ++k)
      codes[k / 8 * 16 + n] |= static_cast<std::uint32_t>((n + 3 * k) % 16) << (4 * (k % 8));
    for (std::size_t g = 0; g < 2; ++g)
      zeros[g * 2 + n / 8] |= static_cast<std::uint32_t>((n + g) % 15) << (4 * (n % 8));  // less one
  }
  CHECK(codes[0] == 0x52FC9630U);
  for (std::uint32_t k = 0; k < 16; ++k) groups.push_back(k / 8);
  auto stored = stored_in(scratch / "gptq" / "model.safetensors");
  CHECK((stored["a.qweight"] == Stored{"I32", {2, 16}, words(codes)}));
  CHECK((stored["a.qzeros"] == Stored{"I32", {2, 2}, words(zeros)}));
  CHECK((stored["a.scales"] == Stored{"F16", {2, 16}, sixteens_scales()}));
  CHECK((stored["a.g_idx"] == Stored{"I32", {16}, words(groups)}));
}

TEST_CASE("export: AWQ's words, by hand", "[export]") {
  const Scratch scratch;
  write_sixteen(scratch / "s");
  export_checkpoint(scratch / "s", scratch / "awq", {.format = "awq"});
  constexpr std::array<std::size_t, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<std::uint32_t> codes(16 * 2), zeros(2 * 2);
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t n = 8 * c + kOrder[i];
      for (std::size_t k = 0; k < 16; ++k) codes[k * 2 + c] |= static_cast<std::uint32_t>((n + 3 * k) % 16) << (4 * i);
      for (std::size_t g = 0; g < 2; ++g) zeros[g * 2 + c] |= static_cast<std::uint32_t>(1 + (n + g) % 15) << (4 * i);
    }
  }
  CHECK(codes[0] == 0x75316420U);
  auto stored = stored_in(scratch / "awq" / "model.safetensors");
  CHECK((stored["a.qweight"] == Stored{"I32", {16, 2}, words(codes)}));
  CHECK((stored["a.qzeros"] == Stored{"I32", {2, 2}, words(zeros)}));
  CHECK((stored["a.scales"] == Stored{"F16", {2, 16}, sixteens_scales()}));
}

TEST_CASE("export: GPTQ's configuration, and each format's numbers and fixed point", "[export]") {
  const Scratch scratch;
  write_sixteen(scratch / "s");
  export_checkpoint(scratch / "s", scratch / "gptq", {.format = "gptq"});
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
