// The schemes, as options take them.
#pragma once

#include <string>
#include <vector>

namespace halfbyte::cli {

std::vector<std::string> scheme_names();

}  // namespace halfbyte::cli
