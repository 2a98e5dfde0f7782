// Whether a module of torch's is still what it was when somebody looked.
#pragma once

#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

namespace halfbyte::python {

// What somebody looked at. It is looked at again for every layer and token, when nothing of it is in cache any more: it
// lies in few places, and what is read is fetched ahead. All calls need the interpreter's lock.
class Watch {
 public:
  // `entries`: (dict, key, value), value None where there is no such key. `classes`: (object, class). `attributes`:
  // (object, name, value). `containers`: dicts. Errors: TypeError, ValueError.
  Watch(const pybind11::list& entries, const pybind11::list& classes, const pybind11::list& attributes,
        const pybind11::list& containers);

  // Whether names mean the same objects.
  bool is_same() const;
  // Whether there is nothing in any container.
  bool is_empty() const;

  // For the garbage collector: a module that is watched may hold this.
  int visit(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Name {
    pybind11::object holder, name, value;
  };
  std::vector<Name> entries_, attributes_;
  std::vector<std::pair<pybind11::object, pybind11::object>> classes_;
  std::vector<pybind11::object> containers_;
  bool is_cleared_ = false;
};

}  // namespace halfbyte::python
