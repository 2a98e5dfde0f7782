#include "tools/python/watch.h"

#include <algorithm>

namespace halfbyte::python {

namespace py = pybind11;

namespace {

py::object at(const py::handle& row, std::size_t index) {
  return py::reinterpret_borrow<py::object>(row[py::int_(index)]);
}

}  // namespace

Watch::Watch(const py::list& entries, const py::list& attributes, const py::list& empty) {
  for (const py::handle row : entries) {
    entries_.push_back({at(row, 0).cast<py::dict>(), at(row, 1), at(row, 2)});
  }
  for (const py::handle row : attributes) attributes_.push_back({at(row, 0), at(row, 1), at(row, 2)});
  for (const py::handle one : empty) {
    empty_.push_back(py::reinterpret_borrow<py::object>(one));
    static_cast<void>(py::len(one));  // it has a length
  }
}

bool Watch::is_same() const {
  const auto is_entry = [](const Name& entry) {
    PyObject* const found = PyDict_GetItemWithError(entry.holder.ptr(), entry.name.ptr());
    if (!found && PyErr_Occurred()) throw py::error_already_set();
    return found ? found == entry.value.ptr() : entry.value.is_none();
  };
  const auto is_attribute = [](const Name& attribute) {
    return py::getattr(attribute.holder, attribute.name, py::none()).is(attribute.value);
  };
  return std::ranges::all_of(entries_, is_entry) && std::ranges::all_of(attributes_, is_attribute);
}

bool Watch::is_plain() const {
  return std::ranges::all_of(empty_, [](const py::object& one) { return py::len(one) == 0; });
}

}  // namespace halfbyte::python
