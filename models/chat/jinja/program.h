// A chat template that can be run: a subset of Jinja as transformers sets it up, without files, without anything of the
// machine, and within bounds.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/jinja/date.h"
#include "models/chat/jinja/heap.h"
#include "models/chat/jinja/text.h"

namespace halfbyte::models::jinja {

struct Variable {
  std::string_view name;
  const nlohmann::ordered_json* value;
  Origin origin = Origin::kGiven;
};

// May be run by many threads at once.
class Program {
 public:
  // `name`: what messages begin with. Errors: kUnsupported naming the line: no Jinja, or none that is known here.
  Program(std::string_view source, std::string name);
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;
  ~Program();

  // Errors, each with the line: kInvalidArgument where the template and the values do not go together (Refused: it says
  // so itself, by raise_exception); kUnsupported beyond a limit.
  Text run(const std::vector<Variable>& variables, const Date& date, const Limits& limits = {}) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
  std::string name_;
};

}  // namespace halfbyte::models::jinja
