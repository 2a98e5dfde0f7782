// Values between Python and what the program has in words and JSON.
#pragma once

#include <string>
#include <string_view>

#include <pybind11/pybind11.h>
#include <nlohmann/json_fwd.hpp>

#include "tools/cli/parse.h"

namespace halfbyte::python {

// The value in its usual form. Errors: kInvalidArgument, naming the argument, for what the program does not take
// either.
std::string checked(std::string_view argument, std::string value, const cli::Check& check);

// The object that json.loads() makes of what the program prints.
pybind11::object object_of(const nlohmann::ordered_json& json);

}  // namespace halfbyte::python
