// Which tensors a GGUF file will have, of which types, and where: before a byte is written. For export_gguf.cpp.
#pragma once

#include "convert/gguf/export.h"
#include "convert/gguf/metadata.h"
#include "convert/gguf/types.h"
#include "loader/files/formats/gguf/names.h"

namespace halfbyte::convert {

struct GgufOutput {
  std::string name;
  std::vector<const files::TensorRecord*> sources;  // experts of a stack, one after another; none: `values`
  std::vector<float> values;                        // of what the configuration says
  std::vector<std::int64_t> shape;
  const GgufType* how = nullptr;          // how it is written
  const files::GgmlType* type = nullptr;  // how large its blocks are
  files::GgufLayout layout;               // of each source
  files::GgufValues instead = files::GgufValues::kAsTheyAre;
  bool is_exact = false;     // codes, scales and offsets as they are
  std::uint64_t offset = 0;  // from the start of the data
  std::uint64_t size_bytes = 0;

  // Values that follow each other in the result: those of a row; of what has no rows, one.
  std::int64_t row_values() const noexcept { return shape.size() > 1 ? shape.back() : 1; }
};

struct GgufPlan {
  std::vector<GgufOutput> tensors;
  std::uint64_t data_bytes = 0;
  GgufExportSummary summary;
};

inline constexpr std::uint64_t kGgufAlignment = 32;
constexpr std::uint64_t gguf_padded(std::uint64_t size) noexcept {
  return (size + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

// Errors: kUnsupported naming the tensor.
GgufPlan plan_gguf(const files::Checkpoint& source, const models::ModelConfig& model, const files::GgufFamily& family,
                   const GgufExportOptions& options);

}  // namespace halfbyte::convert
