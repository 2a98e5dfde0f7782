// A quantised checkpoint as if it were a plain one: for quantising it again.
#pragma once

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

// Packed tensors appear dense, in the dtype on record (float32 where none is known or none can hold them), and are
// dequantised when they are read. No quantisation is left in the config or the manifest.
// Errors: as refuse_turned().
files::Checkpoint dequantized_view(files::Checkpoint source);

// Packed stacks hold rows, and where a family's dense ones hold columns they would have to be turned.
// Errors: kUnsupported naming one that would.
void refuse_turned(const files::Checkpoint& source);

}  // namespace halfbyte::convert
