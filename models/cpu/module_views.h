// A model's weights as models/cpu takes them, read from the modules at every pass: a host may have replaced or moved
// them since.
#pragma once

#include <optional>

#include "models/cpu/views.h"
#include "models/modules/decoder.h"

namespace halfbyte::models::cpu {

// The product with a module's weight, without rows, input and output; nothing where it does not lie as kernels read it,
// or its columns are in an order of their own. `operand`: what the input is, whatever the module would make of it.
std::optional<quant::Product> product_of(const Linear& linear, std::optional<Dtype> operand = std::nullopt);

// False where a tensor does not lie as kernels read it (another device, dtype or order),
// shapes do not fit each other, or the dtypes of products that share an input differ: then the modules run one by one,
// and say what is wrong if anything is.
bool view(const Decoder& decoder, ModelView& out);

}  // namespace halfbyte::models::cpu
