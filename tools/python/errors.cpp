#include <string>

#include <halfbyte/error.h>

#include "tools/cli/exit_status.h"
#include "tools/python/parts.h"

namespace halfbyte::python {

// halfbyte.Error is a RuntimeError with .code; Ctrl-C is what Python has for it.
void add_errors(pybind11::module_& module) {
  static pybind11::exception<Error> type(module, "Error", PyExc_RuntimeError);
  type.attr("code") = "";
  pybind11::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const pybind11::object raised = pybind11::reinterpret_borrow<pybind11::object>(type)(std::string(error.what()));
      raised.attr("code") = std::string(cli::name(error.code()));
      PyErr_SetObject(type.ptr(), raised.ptr());
    }
  });
}

}  // namespace halfbyte::python
