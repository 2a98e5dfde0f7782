// Whether a module of torch's is still what it was when somebody looked: names in dictionaries, classes' functions,
// hooks.
#pragma once

#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

namespace halfbyte::python {

// All calls need the interpreter's lock. Holds what it looks at.
class Watch {
 public:
  // `entries`: (dict, key, value), value None where there is no such key; `attributes`: (object, name, value); `empty`:
  // containers. Error: what pybind11 throws for other objects.
  Watch(const pybind11::list& entries, const pybind11::list& attributes, const pybind11::list& empty);

  // Whether names mean the objects that they meant.
  bool is_same() const;
  // Whether containers are empty, as hooks' are.
  bool is_plain() const;

 private:
  struct Name {
    pybind11::object holder, name, value;
  };
  std::vector<Name> entries_, attributes_;
  std::vector<pybind11::object> empty_;
};

}  // namespace halfbyte::python
