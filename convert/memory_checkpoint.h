// Tensors in memory as every conversion takes them.
#pragma once

#include <halfbyte/memory_source.h>

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

// `source` must outlive it. Errors: as quantize() of one.
files::Checkpoint checkpoint_of(const MemorySource& source);

}  // namespace halfbyte::convert
