// NaN and infinity in a source, of whatever format: nothing is made of them, and what they are in is named.
#include <cmath>
#include <fstream>
#include <limits>

#include <halfbyte/convert.h>

#include "convert/export/checkpoint.h"
#include "convert/gguf/export.h"
#include "loader/files/formats/gguf/file.h"
#include "loader/files/safetensors.h"
#include "loader/files/verify.h"
#include "tests/loader/files/methods/peer.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

// A file whose numbers can be changed where they lie.
class Poison {
 public:
  explicit Poison(fs::path path) : path_(std::move(path)), bytes_(read_text(path_)) {}
  ~Poison() { write_text(path_, bytes_); }
  Poison(const Poison&) = delete;
  Poison& operator=(const Poison&) = delete;
  // All bits of one number are set: NaN in every dtype of floats.
  void put(std::uint64_t offset, std::size_t width) {
    std::string changed = bytes_;
    changed.replace(offset, width, width, '\xff');
    write_text(path_, changed);
  }

 private:
  fs::path path_;
  std::string bytes_;
};

// Everything that reads `source` and writes a checkpoint.
void check_refused(const Scratch& scratch, const fs::path& source, const std::string& named) {
  INFO("named: " << named);
  const fs::path out = scratch / "out";
  check_error(ErrorCode::kCorrupt, {named, "nan"}, [&] { convert::quantize(source, out, {.keep_codes = true}); });
  check_error(ErrorCode::kCorrupt, {named, "nan"}, [&] { convert::dequantize(source, out); });
  check_error(ErrorCode::kCorrupt, {named, "nan"},
              [&] { convert::quantize(source, out, {.scheme = "sym_int4", .group_size = 16, .requantize = true}); });
  CHECK_FALSE(fs::exists(out));
  CHECK_FALSE(fs::exists(scratch / "out.partial"));
}

bool is_watched(const std::string& name) {
  return name.find("q_proj") != std::string::npos || name.find("norm") != std::string::npos ||
         name.find("embed") != std::string::npos || name.find("lm_head") != std::string::npos;
}

// What a tensor of a packed weight belongs to.
std::string owner_of(const std::string& name) {
  const std::size_t at = name.find("proj");
  return at == std::string::npos ? name : name.substr(0, at + 4);
}

// Every kind of float tensor in the file, one after another.
int check_each_float(const Scratch& scratch, const fs::path& source, const std::function<void()>& more = {}) {
  const fs::path file = source / "model.safetensors";
  const files::SafetensorsHeader header = files::read_safetensors_header(files::InputFile(file));
  int count = 0;
  for (const files::SafetensorsEntry& entry : header.entries) {
    if (!is_floating(entry.dtype) || !is_watched(entry.name) || entry.name.ends_with("quant_map")) continue;
    Poison poison(file);
    const auto width = static_cast<std::size_t>(size_bytes(entry.dtype));
    poison.put(entry.offset + entry.size_bytes - width, width);
    check_refused(scratch, source, owner_of(entry.name));
    if (more) more();
    ++count;
  }
  return count;
}

void write_llama(const fs::path& path) { write_checkpoint(path, llama_tensors(true, Dtype::kFloat16), llama_config()); }

}  // namespace

TEST_CASE("finite: a NaN in any float tensor of a checkpoint of halfbyte's is refused", "[finite]") {
  for (const Scheme& scheme : schemes()) {
    for (const bool is_nested : {false, true}) {
      if (is_nested && scheme.layout != Layout::kBitsandbytes) continue;
      INFO(scheme.name << (is_nested ? " nested" : ""));
      const Scratch scratch;
      write_llama(scratch / "s");
      convert::quantize(scratch / "s", scratch / "q",
                        {.scheme = std::string(scheme.name),
                         .group_size = std::min<std::int64_t>(32, scheme.largest_group),
                         .nested_scales = is_nested,
                         .halfbyte_only = true});
      CHECK(check_each_float(scratch, scratch / "q", [&] {
              CHECK_FALSE(files::verify(files::open_checkpoint(scratch / "q")).findings.empty());
            }) >= 6);
    }
  }
}

TEST_CASE("finite: a NaN in any float tensor of other programs' checkpoints is refused", "[finite]") {
  struct Case {
    const char* format;
    const char* scheme;
  };
  for (const Case& c : {Case{"gptq", "sym_int4"}, Case{"gptq", "asym_int4"}, Case{"awq", "asym_int4"},
                        Case{"compressed-tensors", "sym_int4"}, Case{"bitsandbytes", "nf4"}}) {
    INFO(c.format << " " << c.scheme);
    const Scratch scratch;
    write_llama(scratch / "s");
    convert::quantize(scratch / "s", scratch / "q", {.scheme = c.scheme, .group_size = 32});
    convert::export_checkpoint(scratch / "q", scratch / "e", {.format = c.format});
    CHECK(check_each_float(scratch, scratch / "e", [&] {
            for (const char* format : {"compressed-tensors", "gptq", "awq", "bitsandbytes"}) {
              INFO("to " << format);
              check_error(ErrorCode::kCorrupt, {"nan"}, [&] {
                convert::export_checkpoint(scratch / "e", scratch / "x", {.format = format, .requantize = true});
              });
            }
            check_error(ErrorCode::kCorrupt, {},
                        [&] { convert::export_gguf(scratch / "e", scratch / "x.gguf", {.requantize = true}); });
          }) >= 6);
  }
}

TEST_CASE("finite: a NaN in a table that others read is not passed on", "[finite]") {
  const Scratch scratch;
  write_llama(scratch / "s");
  convert::quantize(scratch / "s", scratch / "q", {.scheme = "nf4", .group_size = 32, .nested_scales = true});
  const fs::path file = scratch / "q" / "model.safetensors";
  for (const auto& entry : files::read_safetensors_header(files::InputFile(file)).entries) {
    if (!is_watched(entry.name) || !entry.name.ends_with("quant_map")) continue;
    Poison poison(file);
    poison.put(entry.offset, 4);
    CHECK_FALSE(files::verify(files::open_checkpoint(scratch / "q")).findings.empty());
    check_error(ErrorCode::kCorrupt, {entry.name, "nan"}, [&] { convert::repack(scratch / "q", scratch / "o"); });
  }
}

TEST_CASE("finite: scales that are NaN in a code of their own are refused", "[finite]") {
  struct Case {
    const char* what;
    std::vector<TestTensor> tensors;
    nlohmann::ordered_json quantization;
    const char* poisoned;
  };
  const std::string ones(16, '\x38');
  const std::vector<TestTensor> hqq{{"a.W_q", "U8", {8}, std::string(8, '\x12')},
                                    {"a.scale", "F16", {2, 1}, floats({2, 0.5F}, Dtype::kFloat16)},
                                    {"a.zero", "F16", {2, 1}, floats({1.5F, 0.25F}, Dtype::kFloat16)},
                                    {"a.packing", "U8", {7}, "4bit_u8"},
                                    {"a.axis", "I32", {}, std::string("\1\0\0\0", 4)},
                                    {"a.group_size", "I32", {}, std::string("\x8\0\0\0", 4)},
                                    {"a.shape", "I64", {2}, std::string("\4\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16)}};
  const std::vector<TestTensor> nvfp4{{"a.weight", "U8", {2, 8}, std::string(16, '\x12')},
                                      {"a.weight_scale", "F8_E4M3", {2, 1}, ones.substr(0, 2)},
                                      {"a.weight_scale_2", "F32", {}, floats({0.5F}, Dtype::kFloat32)}};
  const nlohmann::ordered_json modelopt{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  const Case cases[] = {
      {"MXFP4",
       {{"a_blocks", "U8", {2, 1, 16}, std::string(32, '\x12')}, {"a_scales", "U8", {2, 1}, "\x7f\x7f"}},
       {{"quant_method", "mxfp4"}},
       "a_scales"},
      {"NVFP4", nvfp4, modelopt, "a.weight_scale"},
      {"NVFP4's factor", nvfp4, modelopt, "a.weight_scale_2"},
      {"HQQ's scale", hqq, {{"quant_method", "hqq"}}, "a.scale"},
      {"HQQ's zero", hqq, {{"quant_method", "hqq"}}, "a.zero"}};
  for (const Case& c : cases) {
    INFO(c.what);
    const Scratch scratch;
    write_checkpoint(scratch / "s", c.tensors, {{"model_type", "foo"}, {"quantization_config", c.quantization}});
    convert::dequantize(scratch / "s", scratch / "sound");
    const fs::path file = scratch / "s" / "model.safetensors";
    for (const auto& entry : files::read_safetensors_header(files::InputFile(file)).entries) {
      if (entry.name != c.poisoned) continue;
      Poison poison(file);
      const auto width = static_cast<std::size_t>(size_bytes(entry.dtype));
      poison.put(entry.offset + entry.size_bytes - width, width);
      check_error(ErrorCode::kCorrupt, {"\"a"},
                  [&] { convert::quantize(scratch / "s", scratch / "o", {.keep_codes = true}); });
      check_error(ErrorCode::kCorrupt, {"\"a"}, [&] { convert::dequantize(scratch / "s", scratch / "o"); });
      CHECK_FALSE(fs::exists(scratch / "o"));
    }
  }
}

TEST_CASE("finite: a scale that makes weights infinite is refused, alone or with its offset", "[finite]") {
  struct Case {
    const char* scheme;
    const char* part;
    float value;
    bool is_finite;
  };
  // 15 * 1e37 is finite, and with an offset of 3e38 it is not.
  for (const Case& c : {Case{"sym_int4", "_scale", 1e38F, false}, Case{"sym_int4", "_scale", 1e37F, true},
                        Case{"asym_int4", "_scale", 3e37F, false}, Case{"affine_int4", "_offset", 3e38F, false},
                        Case{"affine_int4", "_offset", 1e38F, true}}) {
    INFO(c.scheme << c.part << " " << c.value);
    const Scratch scratch;
    write_checkpoint(scratch / "s", llama_tensors(true, Dtype::kBfloat16), llama_config());
    convert::quantize(scratch / "s", scratch / "q", {.scheme = c.scheme, .group_size = 32, .halfbyte_only = true});
    const fs::path file = scratch / "q" / "model.safetensors";
    std::string bytes = read_text(file);
    for (const auto& entry : files::read_safetensors_header(files::InputFile(file)).entries) {
      if (!entry.name.starts_with("model.layers.0.self_attn.q_proj.weight_")) continue;
      if (entry.name.ends_with(c.part)) bytes.replace(entry.offset, 2, floats({c.value}, Dtype::kBfloat16));
      if (entry.name.ends_with("_scale") && std::string(c.part) == "_offset")
        bytes.replace(entry.offset, 2, floats({1e37F}, Dtype::kBfloat16));
    }
    write_text(file, bytes);
    const auto repacked = [&] { convert::repack(scratch / "q", scratch / "r"); };
    const auto findings = files::verify(files::open_checkpoint(scratch / "q")).findings;
    if (c.is_finite) {
      repacked();
      CHECK(files::verify(files::open_checkpoint(scratch / "r")).findings.empty());
      continue;
    }
    check_error(ErrorCode::kCorrupt, {"q_proj", "infinite in float32"}, repacked);
    CHECK(findings.at(0).problem.find("infinite in float32") != std::string::npos);
  }
}

TEST_CASE("finite: GGUF, in blocks and kept", "[finite]") {
  for (const std::string scheme : {"sym_int4", "affine_int4", "iq4_nl", "sym_int8"}) {
    INFO(scheme);
    const Scratch scratch;
    write_llama(scratch / "s");
    convert::quantize(scratch / "s", scratch / "q", {.scheme = scheme, .group_size = 32, .halfbyte_only = true});
    convert::export_gguf(scratch / "q", scratch / "m.gguf", {});
    const files::GgufFile file(std::make_shared<files::InputFile>(scratch / "m.gguf"));
    for (const auto& [stored, named] : {std::pair{"blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"},
                                        std::pair{"token_embd.weight", "model.embed_tokens.weight"},
                                        std::pair{"output_norm.weight", "model.norm.weight"}}) {
      REQUIRE(file.find_tensor(stored));
      Poison poison(scratch / "m.gguf");
      poison.put(file.find_tensor(stored)->offset, 4);
      check_refused(scratch, scratch / "m.gguf", named);
    }
  }
}

TEST_CASE("finite: a GGUF that lost tensors of its family is refused", "[finite]") {
  const Scratch scratch;
  write_llama(scratch / "s");
  convert::quantize(scratch / "s", scratch / "q", {.group_size = 32});
  convert::export_gguf(scratch / "q", scratch / "m.gguf", {});
  std::string bytes = read_text(scratch / "m.gguf");
  REQUIRE(bytes[8] == 12);  // the count of tensors, after magic and version
  bytes[8] = 3;
  write_text(scratch / "m.gguf", bytes);
  const std::vector<std::string> parts{"m.gguf", "model.", "missing"};
  check_error(ErrorCode::kCorrupt, parts,
              [&] { convert::quantize(scratch / "m.gguf", scratch / "o", {.keep_codes = true}); });
  check_error(ErrorCode::kCorrupt, parts, [&] { convert::dequantize(scratch / "m.gguf", scratch / "o"); });
  check_error(ErrorCode::kCorrupt, parts,
              [&] { convert::export_checkpoint(scratch / "m.gguf", scratch / "o", {.format = "compressed-tensors"}); });
  check_error(ErrorCode::kCorrupt, parts, [&] { convert::export_gguf(scratch / "m.gguf", scratch / "o.gguf", {}); });
}

TEST_CASE("finite: other floating dtypes of kept weights, and what may hold NaN", "[finite]") {
  const Scratch scratch;
  const double bad = std::numeric_limits<double>::quiet_NaN();
  std::string doubles(3 * sizeof bad, '\0');
  std::memcpy(doubles.data() + sizeof bad, &bad, sizeof bad);
  const std::vector<std::pair<TestTensor, bool>> cases = {
      {{"model.norm.weight", "F64", {3}, doubles}, true},
      {{"model.norm.weight", "F8_E4M3", {3}, "\x01\x7f\x01"}, true},
      {{"model.norm.weight", "F8_E5M2", {3}, "\x01\x7e\x01"}, true},
      {{"mask", "F64", {3}, doubles}, false},
      {{"model.norm.weight", "I32", {1}, "\xff\xff\xff\xff"}, false}};
  for (const auto& [tensor, is_refused] : cases) {
    INFO(tensor.name << " " << tensor.dtype);
    auto tensors = llama_tensors(true, Dtype::kFloat16);
    std::erase_if(tensors, [&](const TestTensor& each) { return each.name == tensor.name; });
    tensors.push_back(tensor);
    write_checkpoint(scratch / "s", tensors, llama_config());
    const auto work = [&] { convert::quantize(scratch / "s", scratch / "o", {.group_size = 32, .overwrite = true}); };
    if (is_refused) {
      check_error(ErrorCode::kCorrupt, {tensor.name, "column 1", "nan"}, work);
    } else {
      work();
    }
  }
}
