// What a template can call: functions and methods of the tables, macros, and the few objects that remember something.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

struct Builtin;  // builtins.h
struct Macro;    // syntax.h
struct Scope;    // scope.h

// A call's arguments as they are written.
struct Call {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct CallableBox {
  // One of the two. A function of the tables is called on `self`; a macro sees the variables of where it stands, as
  // long as those are there.
  const Builtin* builtin = nullptr;
  Value self = {};
  const Macro* macro = nullptr;
  std::weak_ptr<Scope> around = {};
  std::optional<Charge> charge = {};
};

}  // namespace halfbyte::models::jinja
