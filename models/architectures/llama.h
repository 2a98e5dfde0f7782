// The Llama family (1, 2, 3, 3.1): its row of the table of architectures.
#pragma once

#include "models/architectures/architecture.h"

namespace halfbyte::models {

extern const Architecture kLlama;

}  // namespace halfbyte::models
