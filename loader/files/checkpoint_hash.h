// One hash of everything in a checkpoint, by which it can be known again.
#pragma once

#include <span>
#include <string>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// XXH3-128 of a text that names every tensor on record and every file beside them with its hash (docs/format.md,
// section 3). `tensor_hashes`: of the bytes of each record, in their order. Reads headers and the files beside the
// data. Errors: kIo.
std::string checkpoint_hash(const Checkpoint& checkpoint, std::span<const std::string> tensor_hashes);

}  // namespace halfbyte::files
