#include "loader/files/manifest.h"

#include <algorithm>

namespace halfbyte::files {
const TensorRecord* Manifest::find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(tensors, name, {}, [](const TensorRecord& t) { return std::string_view(t.name); });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

}  // namespace halfbyte::files
