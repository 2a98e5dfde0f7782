#include "tools/python/values.h"

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

namespace halfbyte::python {

std::string checked(std::string_view argument, std::string value, const cli::Check& check) {
  const std::string problem = check.problem_with(value);
  if (!problem.empty()) throw Error(ErrorCode::kInvalidArgument, std::string(argument) + ": " + problem);
  return value;
}

pybind11::object object_of(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return pybind11::module_::import("json").attr("loads")(text);
}

}  // namespace halfbyte::python
