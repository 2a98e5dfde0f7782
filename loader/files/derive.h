// A manifest for a checkpoint that has none: an original, or one that another tool quantised.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// `packed`: records that the source's format gave already; the rest is derived from `checkpoint`'s config and tensors
// (both filled in), some of which it may replace (read_quantization); architecture may be null. Adds to the
// checkpoint's notes what could not be derived because the configuration asks for more than this version knows; the
// loader refuses such a model by itself. Errors: kUnsupported naming a quantisation that this version does not read;
// kCorrupt.
Manifest derive_manifest(Checkpoint& checkpoint, std::vector<TensorRecord> packed);

// [alias, owner] pairs that config.json declares, stored or not; none for an unknown family or configuration.
std::vector<std::pair<std::string, std::string>> declared_ties(const Checkpoint& checkpoint);

// The record of a tensor that is stored as it is.
TensorRecord dense_record(const Checkpoint& checkpoint, const StoredTensor& tensor);

}  // namespace halfbyte::files
