#include "tools/python/watch.h"

namespace halfbyte::python {

namespace py = pybind11;

namespace {

struct Name {
  py::tuple row;
  PyObject *holder, *name, *value;  // the row's
};

Name name_of(const py::handle& row) {
  const auto words = row.cast<py::tuple>();
  if (words.size() != 3) throw py::value_error("a row has three objects");
  return {words, words[0].ptr(), words[1].ptr(), words[2].ptr()};
}

bool is_entry(const Name& entry) {
  if (!PyDict_Check(entry.holder)) throw py::type_error("an entry's holder is a dict");
  PyObject* const found = PyDict_GetItemWithError(entry.holder, entry.name);
  if (!found && PyErr_Occurred()) throw py::error_already_set();
  return found ? found == entry.value : entry.value == Py_None;
}

bool is_attribute(const Name& attribute) {
  const py::handle holder(attribute.holder), name(attribute.name);
  return py::getattr(holder, name, py::none()).ptr() == attribute.value;
}

}  // namespace

bool are_same(const py::list& entries, const py::list& attributes) {
  for (const py::handle row : entries) {
    if (!is_entry(name_of(row))) return false;
  }
  for (const py::handle row : attributes) {
    if (!is_attribute(name_of(row))) return false;
  }
  return true;
}

bool are_empty(const py::list& containers) {
  for (const py::handle one : containers) {
    if (py::len(one) != 0) return false;
  }
  return true;
}

}  // namespace halfbyte::python
