// What LibTorch or oneDNN refused, in halfbyte's words. Needs no LibTorch.
#pragma once

#include <string>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte {

// what() says what was attempted on which tensors, the cause, and what to change. The library's own text, which may
// have many lines, is in detail(): for a log, not for a user.
class BackendError : public Error {
 public:
  BackendError(ErrorCode code, const Text& text, std::string detail) : Error(code, text), detail_(std::move(detail)) {}
  const std::string& detail() const noexcept { return detail_; }

 private:
  std::string detail_;
};

}  // namespace halfbyte
