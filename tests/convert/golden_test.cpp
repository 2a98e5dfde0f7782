// A whole result, byte by byte, as docs/format.md describes it.
#include <halfbyte/convert.h>

#include "loader/files/hash.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

// Rows of every code once, at scales 1 and 2.
std::string source_weights() {
  std::vector<float> values;
  for (const float scale : {1.0F, 2.0F}) {
    for (int code = -8; code < 8; ++code) values.push_back(scale * static_cast<float>(code));
  }
  return floats(values, Dtype::kBfloat16);
}

const std::string kCodes("\x10\x32\x54\x76\x98\xba\xdc\xfe\x10\x32\x54\x76\x98\xba\xdc\xfe", 16);
const std::string kScales("\x80\x3f\x00\x40", 4);  // bfloat16 1 and 2
const std::string kShape("\2\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0", 16);
const std::string kNorm("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40", 12);  // float32 1, 2, 3

std::string expected_header() {
  return R"({"__metadata__":{"format":"pt"},)"
         R"("a.weight_packed":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]},)"
         R"("a.weight_shape":{"dtype":"I64","shape":[2],"data_offsets":[16,32]},)"
         R"("a.weight_scale":{"dtype":"BF16","shape":[2,1],"data_offsets":[32,36]},)"
         R"("norm.weight":{"dtype":"F32","shape":[3],"data_offsets":[36,48]}})";
}

const char* kConfig = R"({
  "model_type": "golden",
  "x": 1e-05,
  "quantization_config": {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "global_compression_ratio": null,
    "config_groups": {
      "group_0": {
        "targets": [
          "Linear"
        ],
        "weights": {
          "num_bits": 4,
          "type": "int",
          "symmetric": true,
          "strategy": "group",
          "group_size": 16,
          "block_structure": null,
          "dynamic": false,
          "actorder": null
        },
        "input_activations": null,
        "output_activations": null,
        "format": "pack-quantized"
      }
    },
    "ignore": [],
    "kv_cache_scheme": null
  }
}
)";

std::string expected_manifest(const std::string& source_file, const std::string& data_header) {
  const std::string hash_of_packed = files::hash_hex(kCodes + kScales + kShape);
  std::string out = R"({
 "format": "halfbyte",
 "format_version": 1,
 "created_by": "halfbyte 0.1.0",
 "source": {"kind":"safetensors","files":[{"name":"model.safetensors","bytes":)" +
                    std::to_string(source_file.size()) + R"(,"xxh3_128":")" + files::hash_hex(source_file) +
                    R"("}],"declared_dtype":null},
 "conversion": {"group_size":16,"keep":[],"scheme":"sym_int4","scheme_for":[],"search":"absmax"},
 "schemes": {"sym_int4":{"bits":4,"group_size":16,"zero_point":false,"scale_dtype":"bfloat16"}},
 "tensors": {
  "a.weight": {"kind":"parameter","shape":[2,16],"original_dtype":"bfloat16","stored":"sym_int4","parts":{"codes":"a.weight_packed","scale":"a.weight_scale","shape":"a.weight_shape"},"bytes":36,"xxh3_128":")" +
                    hash_of_packed + R"(","error":{"rel_rmse":0.0,"max_abs":0.0}},
  "norm.weight": {"kind":"parameter","shape":[3],"original_dtype":"float32","stored":"float32","parts":{"codes":"norm.weight"},"bytes":12,"xxh3_128":")" +
                    files::hash_hex(kNorm) + R"("}
 },
 "buffers": {},
 "ties": [],
 "kept": {
  "norm.weight": "a norm"
 },
 "dtype": {"recommended":"amp:bfloat16","keep_float32":[]},
 "files": [
  {"name":"model.safetensors","bytes":)" +
                    std::to_string(data_header.size() + 48) + R"(,"hashed_bytes":)" +
                    std::to_string(data_header.size()) + R"(,"xxh3_128":")" + files::hash_hex(data_header) + R"("},
  {"name":"config.json","bytes":)" +
                    std::to_string(std::string(kConfig).size()) + R"(,"hashed_bytes":)" +
                    std::to_string(std::string(kConfig).size()) + R"(,"xxh3_128":")" + files::hash_hex(kConfig) + R"("},
  {"name":"tokenizer.model","bytes":3,"hashed_bytes":3,"xxh3_128":")" +
                    files::hash_hex("tok") + R"("}
 ],
 "xxh3_128": ")";
  const std::string hash = files::hash_hex(out + std::string(32, '0') + "\"\n}\n");
  return out + hash + "\"\n}\n";
}

}  // namespace

TEST_CASE("golden: every byte of a small result", "[convert]") {
  const Scratch scratch;
  const std::vector<TestTensor> tensors{{"a.weight", "BF16", {2, 16}, source_weights()},
                                        {"norm.weight", "F32", {3}, kNorm}};
  write_checkpoint(scratch / "src", tensors, {{"model_type", "golden"}, {"x", 1e-5}});
  write_text(scratch / "src" / "tokenizer.model", "tok");
  convert::quantize(scratch / "src", scratch / "dst", {.group_size = 16, .search = quant::Search::kAbsmax});
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"dst", "src"});
  CHECK(names_in(scratch / "dst") ==
        std::vector<std::string>{"config.json", "halfbyte.json", "model.safetensors", "tokenizer.model"});

  std::string header = expected_header();
  header.append((64 - (8 + header.size()) % 64) % 64, ' ');
  header = with_length(header);
  CHECK(read_text(scratch / "dst" / "model.safetensors") == header + kCodes + kShape + kScales + kNorm);
  CHECK(read_text(scratch / "dst" / "config.json") == kConfig);
  CHECK(read_text(scratch / "dst" / "halfbyte.json") == expected_manifest(safetensors(tensors), header));
  CHECK(read_text(scratch / "dst" / "tokenizer.model") == "tok");
}
