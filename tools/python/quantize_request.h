// What halfbyte.quantize is asked for, by the names that `halfbyte quantize` has.
#pragma once

#include <pybind11/pybind11.h>

#include <halfbyte/convert.h>

#include "tools/verbs/calibration_words.h"

namespace halfbyte::python {

struct QuantizeRequest {
  convert::QuantizeOptions options;
  cli::CalibrationWords calibration;

  bool is_calibrated() const { return !calibration.text.empty(); }
  bool has_target() const { return options.target_bpw > 0 || options.target_size > 0; }
};

// None is what is not given. Errors: TypeError for a name or a type that is not known; kInvalidArgument.
QuantizeRequest request_of(const pybind11::kwargs& given);

}  // namespace halfbyte::python
