// What was written, read as whoever opens it later will read it, before it gets its name.
#pragma once

#include "loader/files/platform.h"

namespace halfbyte::convert {

// Opens the checkpoint at `written`: its manifest, its configuration and every header, and whether they agree; no
// tensor is read. Errors: kIo naming `name`, which it is to have, when it cannot be opened.
void read_back(const files::fs::path& written, const files::fs::path& name);

}  // namespace halfbyte::convert
