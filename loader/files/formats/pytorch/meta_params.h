// Meta's params.json, and the config.json with the same content. For the reader of its checkpoints.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "loader/files/platform.h"

namespace halfbyte::files {

struct MetaParams {
  std::int64_t dim = 0, layers = 0, heads = 0, kv_heads = 0;
  std::int64_t vocab_size = 0;  // 0: the tensors say it
  double norm_eps = 1e-5, rope_theta = 10000.0;
  bool has_scaled_rope = false;
  double rope_factor = 0;  // 0: not said
  bool is_first_llama = false;

  std::int64_t head_dim() const noexcept { return dim / heads; }
};

// Errors: kCorrupt naming the field; kUnsupported: experts, images, quantised weights.
MetaParams read_meta_params(const fs::path& path);

// `hidden_dim` and `vocab_size`: of the tensors.
nlohmann::ordered_json config_of(const MetaParams& params, std::int64_t hidden_dim, std::int64_t vocab_size,
                                 bool has_head, std::string_view dtype);

}  // namespace halfbyte::files
