// Names of the products of experts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace halfbyte::convert::calibrate {

// "A.experts.3.B", the product of an expert of a stack "A.experts.B".
struct ExpertPath {
  std::string stack;
  std::size_t expert;
};
std::optional<ExpertPath> expert_path(const std::string& path);

}  // namespace halfbyte::convert::calibrate
