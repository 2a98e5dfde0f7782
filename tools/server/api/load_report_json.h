// What loading did, as JSON.
#pragma once

#include <filesystem>

#include <halfbyte/load_report.h>

#include "models/json/held.h"

namespace halfbyte::server {

models::HeldOrderedJson json_of(const LoadReport& report);

// What a checkpoint's manifest says of all its tensors together; null where there is none. Errors: kCorrupt, kIo.
models::HeldOrderedJson manifest_summary(const std::filesystem::path& checkpoint);

}  // namespace halfbyte::server
