// Whether a module of torch's is still what it was when somebody looked. All calls need the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace halfbyte::python {

// Whether names mean these objects. `entries`: (dict, key, value), value None where there is no such key; `attributes`:
// (object, name, value). Error: what pybind11 throws for other objects.
bool are_same(const pybind11::list& entries, const pybind11::list& attributes);
bool are_empty(const pybind11::list& containers);

}  // namespace halfbyte::python
