#include "tools/python/watch.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "tools/python/parts.h"

namespace halfbyte::python {

namespace py = pybind11;

namespace {

py::tuple row_of(const py::handle& row, std::size_t count) {
  const auto words = row.cast<py::tuple>();
  if (words.size() != count) throw py::value_error("a row has " + std::to_string(count) + " objects");
  return words;
}

void check_dict(const py::handle& object) {
  if (!PyDict_Check(object.ptr())) throw py::type_error("what is watched by its keys is a dict");
}

void fetch(const void* object) { __builtin_prefetch(object); }

// A dict's table, once the dict itself has come.
void fetch_table(const py::handle& dict) {
  const char* const table = reinterpret_cast<const char*>(reinterpret_cast<PyDictObject*>(dict.ptr())->ma_keys);
  fetch(table);
  fetch(table + 64);
}

// For the garbage collector.
void hold_cycles(PyHeapTypeObject* heap_type) {
  PyTypeObject& type = heap_type->ht_type;
  type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!py::detail::is_holder_constructed(self)) return 0;
    return py::cast<Watch&>(py::handle(self)).visit(visit, arg);
  };
  type.tp_clear = [](PyObject* self) {
    if (py::detail::is_holder_constructed(self)) py::cast<Watch&>(py::handle(self)).clear();
    return 0;
  };
}

}  // namespace

Watch::Watch(const py::list& entries, const py::list& classes, const py::list& attributes, const py::list& containers) {
  for (const py::handle given : entries) {
    const py::tuple row = row_of(given, 3);
    check_dict(row[0]);
    entries_.push_back({row[0], row[1], row[2]});
  }
  for (const py::handle given : classes) {
    const py::tuple row = row_of(given, 2);
    classes_.emplace_back(row[0], row[1]);
  }
  for (const py::handle given : attributes) {
    const py::tuple row = row_of(given, 3);
    attributes_.push_back({row[0], row[1], row[2]});
  }
  for (const py::handle given : containers) {
    check_dict(given);
    containers_.push_back(py::reinterpret_borrow<py::object>(given));
  }
}

bool Watch::is_same() const {
  constexpr std::size_t kObjectsAhead = 8, kTablesAhead = 4;
  if (is_cleared_) return false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i + kObjectsAhead < entries_.size()) fetch(entries_[i + kObjectsAhead].holder.ptr());
    if (i + kTablesAhead < entries_.size()) fetch_table(entries_[i + kTablesAhead].holder);
    const auto& [holder, name, value] = entries_[i];
    PyObject* const found = PyDict_GetItemWithError(holder.ptr(), name.ptr());
    if (!found && PyErr_Occurred()) throw py::error_already_set();
    if (found ? found != value.ptr() : !value.is_none()) return false;
  }
  const auto has_class = [](const auto& row) {
    return reinterpret_cast<PyObject*>(Py_TYPE(row.first.ptr())) == row.second.ptr();
  };
  return std::all_of(classes_.begin(), classes_.end(), has_class) &&
         std::all_of(attributes_.begin(), attributes_.end(),
                     [](const Name& row) { return py::getattr(row.holder, row.name, py::none()).is(row.value); });
}

bool Watch::is_empty() const {
  for (const py::object& one : containers_) fetch(one.ptr());
  return !is_cleared_ && std::all_of(containers_.begin(), containers_.end(),
                                     [](const py::object& one) { return PyDict_Size(one.ptr()) == 0; });
}

int Watch::visit(visitproc visit, void* arg) const {
  for (const std::vector<Name>* rows : {&entries_, &attributes_}) {
    for (const Name& row : *rows) {
      Py_VISIT(row.holder.ptr());
      Py_VISIT(row.name.ptr());
      Py_VISIT(row.value.ptr());
    }
  }
  for (const auto& [object, kind] : classes_) {
    Py_VISIT(object.ptr());
    Py_VISIT(kind.ptr());
  }
  for (const py::object& one : containers_) Py_VISIT(one.ptr());
  return 0;
}

void Watch::clear() {
  is_cleared_ = true;
  const auto entries = std::exchange(entries_, {}), attributes = std::exchange(attributes_, {});
  const auto classes = std::exchange(classes_, {});
  const auto containers = std::exchange(containers_, {});
}

void add_watch(py::module_& module) {
  py::class_<Watch>(module, "Watch", py::custom_type_setup(&hold_cycles))
      .def(py::init<const py::list&, const py::list&, const py::list&, const py::list&>(), py::arg("entries"),
           py::arg("classes"), py::arg("attributes"), py::arg("containers"))
      .def("is_same", &Watch::is_same)
      .def("is_empty", &Watch::is_empty);
}

}  // namespace halfbyte::python
