// quantize --report: the page about a conversion that is done.
#pragma once

#include <filesystem>
#include <string>

#include "convert/conversion.h"

namespace halfbyte::cli {

// Before a conversion that may take hours. Errors: UsageError where `folder` is something else.
void check_report_folder(const std::filesystem::path& folder);

// Writes FOLDER/report.html and FOLDER/report.json: what became of each tensor, the weights' errors, the dtypes, how
// codes were chosen. Errors: as write_report() and files::open_checkpoint().
void report_conversion(const std::filesystem::path& folder, const convert::Conversion& conversion,
                       const std::string& source, const std::string& destination);

}  // namespace halfbyte::cli
