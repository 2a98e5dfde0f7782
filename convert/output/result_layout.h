// Which files a planned conversion will write, and where each part of each tensor goes in them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convert/output/data_file_layout.h"
#include "convert/plan.h"

namespace halfbyte::convert {

// Where the parts of one planned tensor go, by files::Part. Kept tensors have codes only; tied duplicates nothing.
using TensorPlaces = std::array<PartPlace, files::kPartCount>;
inline const PartPlace& place(const TensorPlaces& places, files::Part part) {
  return places[static_cast<std::size_t>(part)];
}

struct ResultLayout {
  std::vector<DataFileLayout> files;
  std::vector<TensorPlaces> places;  // one for each of Plan::tensors
  std::uint64_t size_bytes = 0;      // of all data files, headers included
};

// Files with at most `shard_size` bytes of tensors, in the source's order, the parts of a tensor together; a larger
// tensor has a file of its own. 0: sharded as the source is. A file that would hold nothing is left out.
ResultLayout lay_out(const files::Checkpoint& source, const Plan& plan, std::uint64_t shard_size = 0);

}  // namespace halfbyte::convert
