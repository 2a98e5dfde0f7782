// What loading did, as Python has it.
#pragma once

#include <pybind11/pybind11.h>

#include <halfbyte/load_report.h>

namespace halfbyte::python {

// The fields of halfbyte.LoadReport.
pybind11::dict reported(const LoadReport& report);

}  // namespace halfbyte::python
