// Writes the data files of an export: every thread takes the next piece, some rows of a packed tensor or some bytes of
// one that is copied.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/export/plan.h"
#include "convert/output/data_file_layout.h"
#include "loader/files/translated_file.h"

namespace halfbyte::convert {

// The stored tensors that one tensor of the plan becomes.
struct ExportedParts {
  std::vector<OutputTensor> tensors;
  std::vector<std::shared_ptr<const files::TensorBytes>> bytes;  // copied: one for each
  std::size_t source_file = 0;                                   // by which the result is sharded
};

struct ExportImage {
  std::vector<ExportedParts> parts;  // one for each of the plan's tensors
  std::vector<DataFileLayout> files;
  std::uint64_t size_bytes = 0;  // of tensors
};

// Sharded as the source is. Errors: kUnsupported when two tensors would have one name.
ExportImage lay_out_export(const files::Checkpoint& source, const ExportPlan& plan);

// Writes and syncs the data files. Returns the errors of what was quantised anew. Errors: kIo, kNoResources,
// kInterrupted, kCorrupt and what reading the source gives.
quant::ErrorStats write_export(const files::Checkpoint& source, const ExportPlan& plan, const ExportImage& image,
                               const files::fs::path& directory, const ExportOptions& options);

}  // namespace halfbyte::convert
