// What lies under the name of a file of weights and is something else.
#pragma once

#include <string>

#include "loader/files/platform.h"

namespace halfbyte::files {

// Returns for what may be weights. `cure`: what to do about a text that is nothing known. Errors: kCorrupt for nothing
// at all, a pointer of Git LFS or a web page; kUnsupported for another text.
void refuse_not_weights(const InputFile& file, const std::string& cure);

}  // namespace halfbyte::files
