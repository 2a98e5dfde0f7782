// Where conversions put their results, and what must hold of these. For the targets that convert.
#pragma once

#include <string_view>

#include <halfbyte/error.h>

#include "tests/fuzz/bundle.h"

namespace halfbyte::fuzz {

// A folder that is empty again when this goes.
class Results {
 public:
  Results() = default;
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  fs::path operator/(std::string_view name) const;
};

// Ends the process unless `result`, which was just written, is read and verifies.
void require_good(const fs::path& result);

// Runs it; an Error is an answer, and gives false.
template <class Work>
bool is_done(const Work& work) {
  try {
    work();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace halfbyte::fuzz
