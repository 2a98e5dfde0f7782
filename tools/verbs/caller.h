// Who a verb's work is done for, and what they are told when it is done: the command line, or a function in Python.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "models/json/held.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {

struct Caller {
  std::stop_token stop = {};
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  const Spelling* spelling = &command_line();  // how they write options
};

struct Outcome {
  models::HeldOrderedJson json;  // what --json prints
  std::string line;              // the same for people
  std::vector<std::string> notes = {};
  std::vector<std::string> warnings = {};  // which no option spares them
};

}  // namespace halfbyte::cli
