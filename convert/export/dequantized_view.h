// A quantised checkpoint as if it were a plain one: for quantising it again, and with some of its tensors replaced.
#pragma once

#include <functional>
#include <memory>

#include "loader/files/checkpoint.h"
#include "loader/files/translated_file.h"

namespace halfbyte::convert {

// Packed tensors appear dense, in the dtype on record (float32 where none is known or none can hold them), and are
// dequantised when they are read. No quantisation is left in the config or the manifest.
// Experts that the family stores column by column stay rows (Checkpoint::row_stacks).
enum class Casts { kNone, kToRecorded };  // of tensors that are dense in another dtype than the one on record
files::Checkpoint dequantized_view(files::Checkpoint source, Casts casts = Casts::kNone);

// The bytes that take a tensor's place, dense and in `dtype`; null: it stays as it is. `record` is of the source.
using DenseBytes = std::function<std::unique_ptr<files::TensorBytes>(const files::TensorRecord& record, Dtype dtype)>;
// The source with some of its tensors replaced by dense ones, in the dtype on record (else its own, or float32).
files::Checkpoint with_dense(const std::shared_ptr<const files::Checkpoint>& source, const DenseBytes& bytes_of);

}  // namespace halfbyte::convert
