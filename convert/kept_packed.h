// Tensors that are packed in the source and keep their codes, beside others that are quantised.
#pragma once

#include <map>
#include <stop_token>
#include <string>

#include "convert/output/result_layout.h"

namespace halfbyte::convert {

// Errors: kCorrupt naming a scale that is infinite or NaN; kIo.
void check_kept_packed(const files::Checkpoint& source);

// The hash of each, as the manifest has it: of what was written into `directory`. By name. Errors: kIo, kInterrupted.
std::map<std::string, std::string> hash_kept_packed(const files::Checkpoint& source, const Plan& plan,
                                                    const ResultLayout& layout, const files::fs::path& directory,
                                                    const std::stop_token& stop);

}  // namespace halfbyte::convert
