// What loading under a dtype policy will cost, tensor by tensor, computed from the headers and the manifest alone. For
// `inspect --policy`; the loader's own report says the same afterwards.
#pragma once

#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

struct LoadCost {
  LoadReport report;  // tensors by name, then tied aliases, then derived buffers
  // Units: bytes. What is read of the files to make the tensors that are cast or copied: page cache, which the system
  // takes back when it needs it.
  std::uint64_t read_to_cast_bytes = 0;

  std::uint64_t mapped_bytes() const noexcept { return report.bytes_with(Placement::kMapped); }
  // Memory that each process needs for itself.
  std::uint64_t own_bytes() const noexcept {
    return report.bytes_with(Placement::kCast) + report.bytes_with(Placement::kCopied);
  }
};

// Errors: kInvalidArgument naming a pattern that matches nothing.
LoadCost load_cost(const Checkpoint& checkpoint, const LoadOptions& options);

}  // namespace halfbyte::files
