#include "convert/open_source.h"

#include <halfbyte/error.h>

#include "loader/check_tensors.h"

namespace halfbyte::convert {
namespace {

// A manifest says all that a conversion must know, but whoever reads what comes of it may have config.json alone.
void check_config(const files::Checkpoint& source) try {
  if (source.architecture) static_cast<void>(source.model_config());
} catch (const Error& error) {
  if (error.code() != ErrorCode::kUnsupported) throw;
}

}  // namespace

files::Checkpoint open_source(const files::fs::path& path, std::optional<Dtype> assume_original) {
  files::Checkpoint out = files::open_checkpoint(path);
  check_complete(out);
  check_config(out);
  if (assume_original) files::assume_original(out, *assume_original);
  return out;
}

}  // namespace halfbyte::convert
