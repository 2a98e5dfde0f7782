// The rows of one tensor of a GGUF file, in its type and order, as a record of an image.
#pragma once

#include <memory>

#include "convert/gguf/plan.h"
#include "convert/output/image.h"

namespace halfbyte::convert {

// Both must outlive it. Errors of its pieces: kUnsupported naming tensor and value where the type cannot hold it;
// kCorrupt where one is not finite.
std::shared_ptr<const ImageSource> gguf_rows(const files::Checkpoint& source, const GgufOutput& tensor);

}  // namespace halfbyte::convert
