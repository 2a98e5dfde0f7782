// Variables by name: those of a template, of a loop's turn, of a macro's call.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string_view, Value>> variables;  // names are the template's, which outlives the run
};

}  // namespace halfbyte::models::jinja
