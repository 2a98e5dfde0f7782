// halfbyte.DtypePolicy.
#include <optional>
#include <string>

#include <torch/csrc/utils/pybind.h>

#include <halfbyte/dtype_policy.h>

#include "quant/operators/torch_dtype.h"
#include "tools/python/parts.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;

std::optional<at::ScalarType> type_of(const std::optional<Dtype>& dtype) {
  return dtype ? to_torch(*dtype) : std::nullopt;
}

}  // namespace

void add_policies(py::module_& module) {
  py::class_<DtypePolicy>(module, "DtypePolicy")
      .def(py::init([](const std::string& text) { return DtypePolicy::parse(text); }), py::arg("text"))
      .def_property_readonly("name", &DtypePolicy::name)
      .def_property_readonly("is_amp", &DtypePolicy::is_amp)
      .def_property_readonly("is_original", &DtypePolicy::is_original)
      .def_property_readonly("operand", [](const DtypePolicy& policy) { return type_of(policy.operand()); })
      .def_property_readonly("stream", [](const DtypePolicy& policy) { return type_of(policy.stream()); })
      .def("__str__", &DtypePolicy::name)
      .def("__repr__", [](const DtypePolicy& policy) { return "DtypePolicy('" + policy.name() + "')"; })
      .def("__eq__",
           [](const DtypePolicy& one, const py::object& other) {
             return py::isinstance<DtypePolicy>(other) && one == other.cast<DtypePolicy>();
           })
      .def("__hash__", [](const DtypePolicy& policy) { return py::hash(py::str(policy.name())); })
      .def("__reduce__", [](const py::object& policy) {
        return py::make_tuple(py::type::of(policy), py::make_tuple(policy.attr("name")));
      });
}

}  // namespace halfbyte::python
