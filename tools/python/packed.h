// Packed weights between C++ and halfbyte.LowBitTensor. For sources that include LibTorch.
#pragma once

#include <pybind11/pybind11.h>

#include <halfbyte/low_bit_tensor.h>

namespace halfbyte::python {

// The fields of halfbyte.LowBitTensor, by name, and back. Copies share memory. Errors: kInvalidArgument for a scheme
// that there is not.
pybind11::dict fields_of(const LowBitTensor& tensor);
LowBitTensor tensor_of(const pybind11::dict& fields);

}  // namespace halfbyte::python
