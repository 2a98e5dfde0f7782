// A manifest for a checkpoint that has none: an original, or one that another tool quantised.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// From `checkpoint`'s config and tensors (both filled in); architecture may be null. Adds to `notes` what could not be
// derived because the configuration asks for more than this version knows; the loader refuses such a model by itself.
// Errors: kUnsupported naming a quantisation that this version does not read; kCorrupt.
Manifest derive_manifest(const Checkpoint& checkpoint, std::vector<std::string>& notes);

// [alias, owner] pairs that config.json declares, stored or not; none for an unknown family or configuration.
std::vector<std::pair<std::string, std::string>> declared_ties(const Checkpoint& checkpoint);

// The record of a tensor that is stored as it is.
TensorRecord dense_record(const Checkpoint& checkpoint, const StoredTensor& tensor);

}  // namespace halfbyte::files
