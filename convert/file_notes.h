// Notes for the user about a source's files, the same for every kind of result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <halfbyte/text.h>

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

std::string listed(const std::vector<files::fs::path>& names);  // "a, b"
std::string counted_tensors(std::int64_t count);                // "1 tensor"
// Side files of other tools that describe a checkpoint's quantisation. They are not copied: the result's is another.
bool is_quantization_file(const files::fs::path& name);
// What opening it gave, then which files are not copied. Errors: kUnsupported for a name that the record of a
// checkpoint, which is JSON, cannot hold.
std::vector<Text> file_notes(const files::Checkpoint& source);

}  // namespace halfbyte::convert
