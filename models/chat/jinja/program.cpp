#include "models/chat/jinja/program.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/from_json.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/parser.h"

namespace halfbyte::models::jinja {

struct Program::Parsed {
  Block body;
};

Program::Program(std::string_view source, std::string name) : name_(std::move(name)) {
  try {
    parsed_ = std::make_unique<const Parsed>(parse_template(source));
  } catch (const Error& error) {
    throw Error(error.code(), name_ + ": " + error.what());
  }
}

Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;
Program::~Program() = default;

Text Program::run(const std::vector<Variable>& variables, const Date& date, const Limits& limits) const {
  std::size_t bytes = 0;
  for (const Variable& variable : variables) bytes += size_of(*variable.value);
  Heap heap(limits.for_input(bytes));
  Interpreter run(heap, date);
  const auto where = [&](const Error& error) {
    return name_ + ": line " + std::to_string(run.line()) + ": " + error.what();
  };
  try {
    for (const Variable& variable : variables) run.set(variable.name, value_of(*variable.value, variable.origin, heap));
    run.execute(parsed_->body);
  } catch (const Refused& error) {
    throw Refused(where(error));
  } catch (const Error& error) {
    throw Error(error.code(), where(error));
  }
  return run.take_output();
}

}  // namespace halfbyte::models::jinja
