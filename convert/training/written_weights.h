// A checkpoint with other values of its weights, and everything else as it was.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convert/output/destination.h"
#include "models/json/held.h"
#include "models/training/optimizer.h"

namespace halfbyte::convert {

// Whether write_weights() can write values under these names, which are those of the model's parameters. Errors:
// kUnsupported naming a weight that the checkpoint has under no name of its own, that is packed there, or of a dtype
// that is not written; one that config.json ties to another although both are stored.
void check_writable(const fs::path& checkpoint, std::span<const std::string> names);

// Writes all files of the checkpoint, plain, into a destination that is claimed, and does not commit it: each tensor of
// one of these names with the values given, rounded once to the dtype on record (the one it has, where there is none);
// an expert's into the stack that its family has; the other tensors as they are. halfbyte.json says in "conversion",
// "training", what it was made of: the checkpoint as "base", and what `record`, an object or null, adds.
// Shapes and dtypes: the parameters', on the CPU, float32 or bfloat16. Errors: as check_writable; kUnsupported naming a
// value that the dtype would make infinite, kCorrupt one that is not finite; kIo, kNoResources.
void write_weights(const fs::path& checkpoint, const std::vector<training::NamedTensor>& weights,
                   const Destination& destination, const models::HeldJson& record = {});

}  // namespace halfbyte::convert
