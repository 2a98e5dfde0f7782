// How the packed products of a loaded model are computed. Needs no LibTorch.
#pragma once

#include <halfbyte/linear.h>
#include <halfbyte/load_options.h>

namespace halfbyte {

// What `options.compute` means for a model on `device`. Errors: kInvalidArgument (int8 on another device than the CPU).
quant::Arithmetic choose_arithmetic(const LoadOptions& options, const Device& device, bool is_int8_fast);

}  // namespace halfbyte
