#include "convert/calibrate/expert_path.h"

#include <charconv>

namespace halfbyte::convert::calibrate {

std::optional<ExpertPath> expert_path(const std::string& path) {
  const std::size_t last = path.rfind('.');
  const std::size_t dot = last == std::string::npos ? last : path.rfind('.', last - 1);
  if (dot == std::string::npos || dot >= last) return std::nullopt;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(path.data() + dot + 1, path.data() + last, number);
  if (error != std::errc() || end != path.data() + last) return std::nullopt;
  return ExpertPath{path.substr(0, dot) + path.substr(last), number};
}

}  // namespace halfbyte::convert::calibrate
