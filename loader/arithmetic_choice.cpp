#include "loader/arithmetic_choice.h"

#include <halfbyte/error.h>

namespace halfbyte {

quant::Arithmetic choose_arithmetic(const LoadOptions& options, const Device& device, bool is_int8_fast) {
  if (options.compute == ComputeMode::kFloat) return quant::Arithmetic::kFloat;
  if (options.compute == ComputeMode::kInt8) {
    if (device.is_cpu()) return quant::Arithmetic::kInt8;
    throw Error(ErrorCode::kInvalidArgument,
                "compute int8 multiplies in 8-bit integers on the CPU alone, and the device is " + device.name() +
                    "; choose compute auto or float, or device cpu");
  }
  // An explicit policy asks for arithmetic in its dtype; amp leaves the choice.
  return options.dtype.is_amp() && is_int8_fast && device.is_cpu() ? quant::Arithmetic::kMixed
                                                                   : quant::Arithmetic::kFloat;
}

}  // namespace halfbyte
