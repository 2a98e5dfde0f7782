// The part of verify that a loader can ask for: are the bytes that it will use those that were written?
#pragma once

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// Reads the tensor's parts, block by block. False: no hash is on record.
// Errors: kCorrupt naming the tensor; kIo.
bool check_tensor_hash(const Checkpoint& checkpoint, const TensorRecord& record);

// config.json against its record in the manifest. False: no record. Errors: kCorrupt; kIo.
bool check_config_hash(const Checkpoint& checkpoint);

}  // namespace halfbyte::files
