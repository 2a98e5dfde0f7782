#include "convert/open_source.h"

#include "loader/check_tensors.h"

namespace halfbyte::convert {

files::Checkpoint open_source(const files::fs::path& path, std::optional<Dtype> assume_original) {
  files::Checkpoint out = files::open_checkpoint(path);
  check_complete(out);
  if (assume_original) files::assume_original(out, *assume_original);
  return out;
}

}  // namespace halfbyte::convert
