// One hash of everything in a checkpoint, by which it can be known again, and one of what is known without reading it
// all.
#pragma once

#include <span>
#include <string>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// XXH3-128 of a text that names every tensor on record and every file beside them with its hash (docs/format.md,
// section 3). `tensor_hashes`: of the bytes of each record, in their order. Reads headers and the files beside the
// data. Errors: kIo.
std::string checkpoint_hash(const Checkpoint& checkpoint, std::span<const std::string> tensor_hashes);

struct CheckpointIdentity {
  // 32 hexadecimal digits. Of config.json's values and of each tensor on record: name, shape, how it is stored, and its
  // hash; where some tensor has none on record, of the data files' sizes and times too.
  std::string hash;
  bool knows_values = false;  // every tensor has a hash on record
};

// Errors: kIo.
CheckpointIdentity checkpoint_identity(const Checkpoint& checkpoint);

// The same, but equal for copies whose files have other times: where some tensor has no hash on record, of the sizes of
// the data files and of some of their bytes (1 MiB each from the start, the middle and the end). Errors: kIo.
std::string checkpoint_likeness(const Checkpoint& checkpoint);

}  // namespace halfbyte::files
