// A quantised checkpoint as if it were a plain one: for quantising it again.
#pragma once

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

// Packed tensors appear dense, in the dtype on record (float32 where none is known or none can hold them), and are
// dequantised when they are read. No quantisation is left in the config or the manifest.
// Experts that the family stores column by column stay rows (Checkpoint::row_stacks).
files::Checkpoint dequantized_view(files::Checkpoint source);

}  // namespace halfbyte::convert
