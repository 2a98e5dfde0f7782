// halfbyte._halfbyte: what the package for Python is bound to.
#include "tools/python/parts.h"

PYBIND11_MODULE(_halfbyte, module) {
  module.attr("__version__") = HALFBYTE_VERSION;
  halfbyte::python::add_errors(module);
  halfbyte::python::add_conversion(module);
  halfbyte::python::add_growing(module);
  halfbyte::python::add_layer_step(module);
  halfbyte::python::add_memory(module);
  halfbyte::python::add_model(module);
  halfbyte::python::add_modules(module);
  halfbyte::python::add_policies(module);
  halfbyte::python::add_reports(module);
  halfbyte::python::add_tensors(module);
  halfbyte::python::add_tokenizer(module);
  halfbyte::python::add_watch(module);
}
