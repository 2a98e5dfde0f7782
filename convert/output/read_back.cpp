#include "convert/output/read_back.h"

#include <halfbyte/error.h>

#include "loader/files/checkpoint.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

// What says something about the bytes, not about this moment.
bool is_of_the_bytes(ErrorCode code) {
  return code == ErrorCode::kCorrupt || code == ErrorCode::kUnsupported || code == ErrorCode::kNotFound ||
         code == ErrorCode::kInvalidArgument;
}

}  // namespace

void read_back(const files::fs::path& written, const files::fs::path& name) try {
  files::open_checkpoint(written);
} catch (const Error& error) {
  if (!is_of_the_bytes(error.code())) throw;
  throw Error(ErrorCode::kIo, files::printable_path(name) +
                                  " does not get its name: what was written cannot be read back (" + error.text() +
                                  "); try another disk, and report it if that does not help");
}

}  // namespace halfbyte::convert
