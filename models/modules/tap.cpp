#include "models/modules/tap.h"

#include <utility>

namespace halfbyte::models {

constinit thread_local Tap* Tap::innermost_ = nullptr;

Tap::Tap(Product product) : product_(std::move(product)), outer_(std::exchange(innermost_, this)) {}

Tap::~Tap() { innermost_ = outer_; }

}  // namespace halfbyte::models
