// What becomes of every tensor when a checkpoint is exported, decided before a byte is written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convert/export/checkpoint.h"
#include "convert/export/format.h"
#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

enum class ExportAction : std::uint8_t {
  kCopy,         // the bytes that are stored: dense, or packed in the format's own layout
  kRearrange,    // the same codes and numbers in another layout
  kRoundScales,  // the same codes, scales rounded to float16
  kQuantize,     // quantised anew from its numbers
  kDequantize,   // written dense
};

struct ExportedTensor {
  const files::TensorRecord* source;
  ExportAction action = ExportAction::kCopy;
  files::TensorRecord result;  // as halfbyte would have it on record
  std::string reason;          // why its numbers change; empty: they do not
};

struct ExportPlan {
  const ExportFormat* format = nullptr;
  std::vector<ExportedTensor> tensors;  // by name
  ExportFacts facts;
  double scale_change = 0;  // the largest, of rounded scales, relative
  std::vector<Text> notes;

  std::vector<files::TensorRecord> results() const;
};

// Reads all scales and zero points where the format does not take them as they are. Errors: kUnsupported as
// export_checkpoint; kCorrupt for a scale that is not finite.
ExportPlan plan_export(const files::Checkpoint& source, const ExportFormat& format, const ExportOptions& options);

}  // namespace halfbyte::convert
