// A checkpoint as Python names it: a path, or an "org/model" of the hub (halfbyte/_hub.py), which is downloaded.
#pragma once

#include <filesystem>

#include <pybind11/pybind11.h>
#include <pybind11/stl/filesystem.h>

namespace halfbyte::python {

struct Source {
  std::filesystem::path path;

  operator const std::filesystem::path&() const noexcept { return path; }  // NOLINT(google-explicit-constructor)
};

}  // namespace halfbyte::python

namespace pybind11::detail {

template <>
struct type_caster<halfbyte::python::Source> {
  PYBIND11_TYPE_CASTER(halfbyte::python::Source, const_name("os.PathLike"));

  bool load(handle given, bool convert) {
    make_caster<std::filesystem::path> plain;
    if (!plain.load(given, convert)) return false;
    value.path = module_::import("halfbyte._hub").attr("local")(given).cast<std::filesystem::path>();
    return true;
  }
};

}  // namespace pybind11::detail
