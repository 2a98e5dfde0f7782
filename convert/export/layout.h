// How packed tensors lie in each format: the tensors that one consists of, and where a block of rows goes in them.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/export/block.h"
#include "convert/output/image.h"
#include "loader/files/manifest.h"

namespace halfbyte::convert {

// What is the same for all packed tensors of a uniform format.
struct ExportFacts {
  int bits = 4;
  std::int64_t group_size = 0;  // 0: one scale a row
  bool is_symmetric = true;     // all zero points are the middle of the codes' range
  bool is_gptq_v2 = false;      // zero points as they are, not less one
};

struct ExportLayout {
  std::vector<OutputTensor> (*parts)(const files::TensorRecord& result);
  // The first block, which has row 0, writes the parts that belong to no row, too.
  void (*write)(const files::TensorRecord& result, const ExportFacts& facts, const PackedBlock& block,
                const WritePart& write);
};

extern const ExportLayout kOwnLayout;  // halfbyte's, which compressed-tensors and bitsandbytes read
extern const ExportLayout kGptqLayout;
extern const ExportLayout kAwqLayout;

}  // namespace halfbyte::convert
