#include "tools/cli/scheme_names.h"

#include <halfbyte/scheme.h>

namespace halfbyte::cli {

std::vector<std::string> scheme_names() {
  std::vector<std::string> out;
  for (const Scheme& scheme : schemes()) out.emplace_back(scheme.name);
  return out;
}

}  // namespace halfbyte::cli
