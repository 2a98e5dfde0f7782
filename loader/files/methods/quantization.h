// What config.json's quantization_config says of the tensors, in halfbyte's words.
#pragma once

#include <vector>

#include "loader/files/checkpoint.h"
#include "loader/files/json_fields.h"

namespace halfbyte::files {

// Records of all tensors. Those whose layout halfbyte does not compute on are replaced, in the checkpoint, by
// translated ones. `config` is the quantization_config.
using ReadQuantization = std::vector<TensorRecord>(Checkpoint& checkpoint, const JsonField& config);

// Records of all tensors as config.json's quantization_config (or its absence) explains them.
// Errors: kUnsupported naming a method, format or option that this version does not read; kCorrupt.
std::vector<TensorRecord> read_quantization(Checkpoint& checkpoint);

// Adds the records of the tensors that are no part of a packed one.
std::vector<TensorRecord> with_dense_records(const Checkpoint& checkpoint, std::vector<TensorRecord> packed);

[[noreturn]] void fail_unsupported(const std::string& where, const std::string& what);

}  // namespace halfbyte::files
