// What the module is made of.
#pragma once

#include <pybind11/pybind11.h>

namespace halfbyte::python {

void add_errors(pybind11::module_& module);
void add_conversion(pybind11::module_& module);
void add_memory(pybind11::module_& module);
void add_growing(pybind11::module_& module);
void add_layer_step(pybind11::module_& module);
void add_model(pybind11::module_& module);
void add_modules(pybind11::module_& module);
void add_policies(pybind11::module_& module);
void add_reports(pybind11::module_& module);
void add_tensors(pybind11::module_& module);
void add_tokenizer(pybind11::module_& module);
void add_watch(pybind11::module_& module);

}  // namespace halfbyte::python
