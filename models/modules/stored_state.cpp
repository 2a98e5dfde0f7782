#include "models/modules/stored_state.h"

#include <sstream>

namespace halfbyte::models {
namespace {

std::string said(at::IntArrayRef shape, at::ScalarType dtype) {
  std::ostringstream out;
  out << c10::toString(dtype) << ' ' << shape;
  return out.str();
}

}  // namespace

at::Tensor LayerSource::take(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) const {
  const StoredEntry stored = entry(name);
  if (shape != at::IntArrayRef(stored.shape) || dtype != stored.dtype)
    refuse(name, "is " + said(stored.shape, stored.dtype) + ", this model keeps " + said(shape, dtype));
  return source_.read(prefix_ + name);
}

}  // namespace halfbyte::models
