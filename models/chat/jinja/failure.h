// How the parts of the interpreter refuse: what is said here is completed with the template's name and line where the
// run ends.
#pragma once

#include <string>

#include <halfbyte/error.h>

namespace halfbyte::models::jinja {

// The template's own raise_exception. kInvalidArgument.
struct Refused : Error {
  explicit Refused(const std::string& problem) : Error(ErrorCode::kInvalidArgument, problem) {}
};

// The conversation and the template do not go together: a wrong type, something undefined.
[[noreturn]] inline void fail(const std::string& problem) { throw Error(ErrorCode::kInvalidArgument, problem); }

// The template asks for what is not known here, or for more than it may have.
[[noreturn]] inline void refuse(const std::string& problem) { throw Error(ErrorCode::kUnsupported, problem); }

}  // namespace halfbyte::models::jinja
