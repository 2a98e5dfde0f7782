// Records of an image whose weights are checked while they pass.
#pragma once

#include "convert/output/image.h"
#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

// Makes the source of `out`, whose parts are what `record` becomes, one that gives the same bytes and throws kCorrupt,
// naming tensor, part and place, where a weight is NaN or infinite, or its scale makes it so. What may hold such
// numbers passes as it is. Both must outlive `out`.
void check_finite_parts(const files::Checkpoint& checkpoint, const files::TensorRecord& record, ImageRecord& out);

}  // namespace halfbyte::convert
