#include "models/modules/tap.h"

#include <utility>

namespace halfbyte::models {

constinit thread_local Tap* Tap::innermost_ = nullptr;

Tap::Tap(Given given, Product product, Change change)
    : given_(std::move(given)),
      product_(std::move(product)),
      change_(std::move(change)),
      outer_(std::exchange(innermost_, this)) {}

Tap::~Tap() { innermost_ = outer_; }

}  // namespace halfbyte::models
