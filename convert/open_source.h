// What every conversion begins with.
#pragma once

#include <optional>

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

// The checkpoint at `path`, as files::open_checkpoint, whole as far as its file can say (check_complete), with
// `assume_original` for the original dtypes that are not on record. Errors: of these.
files::Checkpoint open_source(const files::fs::path& path, std::optional<Dtype> assume_original);

}  // namespace halfbyte::convert
