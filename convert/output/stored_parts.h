// Records of an image whose bytes can be read as they will be written.
#pragma once

#include <memory>
#include <vector>

#include "convert/output/image.h"
#include "loader/files/checkpoint.h"
#include "loader/files/translated_file.h"

namespace halfbyte::convert {

// The bytes of each part, copied one part after another.
std::shared_ptr<const ImageSource> stored_parts(std::vector<std::shared_ptr<const files::TensorBytes>> parts);

// A tensor of a checkpoint as it is stored, or translated.
std::shared_ptr<const files::TensorBytes> stored_bytes(const files::Checkpoint& checkpoint,
                                                       const files::StoredTensor& tensor);

}  // namespace halfbyte::convert
