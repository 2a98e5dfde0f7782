// Whether two checkpoints hold the same tensors. For tests of GGUF's export.
#pragma once

#include <algorithm>
#include <cmath>

#include "loader/files/checkpoint.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/turned_stacks.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

inline std::vector<float> values_of(const files::Checkpoint& checkpoint, const files::TensorRecord& record) {
  files::TensorReader reader(checkpoint, record);
  std::vector<float> out(static_cast<std::size_t>(reader.size()));
  reader.read(0, out);
  return out;
}

inline float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

// A checkpoint whose experts are rows, whatever its family does.
inline files::Checkpoint with_rows(const fs::path& path) {
  files::Checkpoint out = files::open_checkpoint(path);
  files::turn_to_rows(out);
  return out;
}

// The result holds every tensor of the source, of the same shape and values. What GGUF has as rows of columns, and
// what it has by an exponential, comes back dense. Norms to which the file adds 1 lose what float32 has no room for
// beside it: `norms` is how far they may be, and logarithms eight times as far.
inline void check_same(const fs::path& a, const fs::path& b, float norms = 0) {
  const files::Checkpoint source = with_rows(a), result = with_rows(b);
  std::size_t count = 0;
  for (const files::TensorRecord& record : source.manifest.tensors) {
    INFO("tensor: " << record.name);
    if (models::role_of(source.architecture, record.name, record.shape) == models::Role::kBuffer) continue;  // derived
    ++count;
    const files::TensorRecord* found = result.manifest.find(record.name);
    REQUIRE(found);
    CHECK(found->shape == record.shape);
    const bool is_latent = record.name.ends_with("kv_b_proj.weight");
    CHECK((found->scheme != nullptr) == (record.scheme != nullptr && !is_latent));
    const float bound = record.name.ends_with("A_log") ? 8 * norms : record.shape.size() == 1 ? norms : 0;
    CHECK(largest_difference(values_of(source, record), values_of(result, *found)) <= bound);
  }
  CHECK(result.manifest.tensors.size() == count);
}

}  // namespace halfbyte::testing
