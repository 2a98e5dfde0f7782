// A checkpoint with one packed and one dense tensor, every byte of it written by hand from docs/format.md.
#pragma once

#include "loader/files/hash.h"
#include "loader/files/manifest.h"
#include "loader/files/packed_parts.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

// Row 0: codes -8 ... 7 twice, scales 1 and 0.5. Row 1: all codes 0, scales 2 and -1.
inline std::vector<TestTensor> packed_tensors() {
  std::string codes;
  for (int group = 0; group < 2; ++group) {
    for (int byte = 0; byte < 8; ++byte) codes += static_cast<char>((2 * byte) | ((2 * byte + 1) << 4));
  }
  codes += std::string(16, '\x88');
  const std::int64_t shape[] = {2, 32};
  return {{"a.weight_packed", "I32", {2, 4}, codes},
          {"a.weight_scale", "BF16", {2, 2}, floats({1.0F, 0.5F, 2.0F, -1.0F}, Dtype::kBfloat16)},
          {"a.weight_shape", "I64", {2}, std::string(reinterpret_cast<const char*>(shape), sizeof shape)},
          {"n.weight", "F32", {3}, floats({1.0F, 2.0F, 3.0F}, Dtype::kFloat32)}};
}

inline files::Manifest packed_manifest() {
  files::Manifest out;
  out.source_kind = "safetensors";
  files::TensorRecord packed;
  packed.name = "a.weight";
  packed.shape = {2, 32};
  packed.original_dtype = Dtype::kBfloat16;
  packed.scheme = &scheme(SchemeId::kSymInt4);
  packed.scale_dtype = Dtype::kBfloat16;
  packed.group_size = 16;
  packed.parts = files::packed_part_names(packed);
  packed.size_bytes = 32 + 8 + 16;
  const auto tensors = packed_tensors();
  packed.xxh3_128 = files::hash_hex(tensors[0].bytes + tensors[1].bytes + tensors[2].bytes);
  files::TensorRecord norm;
  norm.name = "n.weight";
  norm.shape = {3};
  norm.original_dtype = Dtype::kFloat32;
  norm.stored_dtype = Dtype::kFloat32;
  norm.parts[files::Part::kCodes] = "n.weight";
  norm.size_bytes = 12;
  norm.xxh3_128 = files::hash_hex(tensors[3].bytes);
  out.tensors = {packed, norm};
  out.kept = {{"n.weight", "a norm"}};
  return out;
}

inline void write_packed_checkpoint(const fs::path& directory, const files::Manifest& manifest = packed_manifest(),
                                    const std::vector<TestTensor>& tensors = packed_tensors()) {
  write_checkpoint(directory, tensors);
  write_text(directory / files::kManifestFile, files::manifest_to_json(manifest));
}

}  // namespace halfbyte::testing
