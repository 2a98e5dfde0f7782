// Weights as bitsandbytes packs them, byte by byte. For tests of its reader and of repacking.
#pragma once

#include <halfbyte/scheme.h>

#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

// Of value i.
inline std::size_t code_at(std::int64_t i) { return static_cast<std::size_t>((i * 7 + i / 16) % 16); }
// Of block b.
inline float scale_at(std::int64_t block) { return 0.25F + 0.125F * static_cast<float>(block); }

struct BitsandbytesWeight {
  std::string name = "a.weight";
  std::vector<std::int64_t> shape{2, 64};
  std::int64_t block_size = 32;
  std::string type = "nf4";
  bool is_nested = false;
  std::int64_t nested_block_size = 256;
  std::string storage = "U8";  // as safetensors spells it
  std::optional<Codebook> codebook = std::nullopt;

  std::int64_t values() const {
    std::int64_t out = 1;
    for (const std::int64_t length : shape) out *= length;
    return out;
  }
  std::int64_t blocks() const { return (values() + block_size - 1) / block_size; }
  Codebook quant_map() const { return codebook.value_or(*find_scheme(type)->codebook); }

  // nested_quant_map[byte] * nested_absmax + offset, when the scales are nested.
  float scale(std::int64_t block) const {
    if (!is_nested) return scale_at(block);
    const float outer = scale_at(block / nested_block_size) * (static_cast<float>(block % 256) / 300.0F);
    return outer + 0.3F;
  }

  std::vector<float> wanted() const {
    std::vector<float> out;
    for (std::int64_t i = 0; i < values(); ++i) out.push_back(quant_map()[code_at(i)] * scale(i / block_size));
    return out;
  }

  ordered_json state() const {
    ordered_json out{{"quant_type", type}, {"blocksize", block_size}, {"dtype", "bfloat16"}, {"shape", shape}};
    if (!is_nested) return out;
    out["nested_blocksize"] = nested_block_size;
    out["nested_dtype"] = "float32";
    out["nested_offset"] = static_cast<double>(0.3F);
    return out;
  }

  TestTensor codes() const {
    std::string bytes;
    for (std::int64_t i = 0; i < values(); i += 2)
      bytes += static_cast<char>(code_at(i) << 4 | (i + 1 < values() ? code_at(i + 1) : 0));
    const auto width = storage == "U8" ? 1 : storage == "F32" ? 4 : 2;
    return {name, storage, {static_cast<std::int64_t>(bytes.size()) / width, 1}, bytes};
  }

  std::vector<TestTensor> tensors() const {
    const Codebook book = quant_map();
    const std::string text = state().dump();
    std::vector<TestTensor> out{
        codes(),
        {name + ".quant_map", "F32", {16}, floats({book.begin(), book.end()}, Dtype::kFloat32)},
        {name + ".quant_state.bitsandbytes__" + type, "U8", {static_cast<std::int64_t>(text.size())}, text}};
    std::vector<float> scales, book8;
    const std::int64_t outer = is_nested ? (blocks() + nested_block_size - 1) / nested_block_size : blocks();
    for (std::int64_t i = 0; i < outer; ++i) scales.push_back(scale_at(i));
    if (!is_nested) {
      out.push_back({name + ".absmax", "F32", {blocks()}, floats(scales, Dtype::kFloat32)});
      return out;
    }
    std::string bytes;
    for (std::int64_t i = 0; i < blocks(); ++i) bytes += static_cast<char>(i % 256);
    for (int i = 0; i < 256; ++i) book8.push_back(static_cast<float>(i) / 300.0F);
    out.push_back({name + ".absmax", "U8", {blocks()}, bytes});
    out.push_back({name + ".nested_absmax", "F32", {outer}, floats(scales, Dtype::kFloat32)});
    out.push_back({name + ".nested_quant_map", "F32", {256}, floats(book8, Dtype::kFloat32)});
    return out;
  }
};

inline ordered_json bitsandbytes_config() {
  return {
      {"model_type", "foo"},
      {"quantization_config",
       {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"_load_in_8bit", false}, {"load_in_8bit", false}}}};
}

}  // namespace halfbyte::testing
