// Which files make up a model: a GGUF file, or the parts that one was split into.
#pragma once

#include <vector>

#include "loader/files/formats/gguf/config.h"

namespace halfbyte::files {

// Of a folder's file names, those of its model, in order; empty: there is none. Errors: kUnsupported when there are
// several models, kCorrupt when parts are missing.
std::vector<std::string> choose_gguf_files(const fs::path& directory, const std::vector<std::string>& names);

// All parts of the model that `path` is (one of), opened and checked to belong together. Errors: kCorrupt naming a part
// that is missing or of another model.
GgufParts open_gguf_parts(const fs::path& path);

}  // namespace halfbyte::files
