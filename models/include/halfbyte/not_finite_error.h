// What a model that runs in kernels alone says where values of a pass are lost.
#pragma once

#include <halfbyte/error.h>

namespace halfbyte {

// Something of a pass was not finite: kContract. A model of modules (load_low_bit()) says what it was, and where.
class NotFiniteError : public Error {
 public:
  explicit NotFiniteError(const Text& text) : Error(ErrorCode::kContract, text) {}
};

}  // namespace halfbyte
