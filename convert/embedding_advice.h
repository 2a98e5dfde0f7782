// What to say of a conversion whose result is largely an embedding and a head in 16 bits.
#pragma once

#include <halfbyte/text.h>

#include "convert/plan.h"

namespace halfbyte::convert {

// One line: how much of the result the dense embedding and head are, what they would be in 8 bits, and how to ask for
// it. Empty: they are less than a fifth, something was asked for them already, or nothing is quantised.
Text embedding_advice(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options);

}  // namespace halfbyte::convert
