// The manifest of a finished conversion.
#pragma once

#include "convert/convert_tensors.h"

namespace halfbyte::convert {

// Without `files`, which the caller adds as it writes them. `spelling`: of options in the reasons why tensors are kept.
files::Manifest result_manifest(const files::Checkpoint& source, const Plan& plan, const ConversionResult& result,
                                const Spelling& spelling);

// The data files' records: the hash of each header; tensors have their own.
std::vector<files::FileRecord> data_file_records(const ResultLayout& layout);

}  // namespace halfbyte::convert
