#include "tools/python/reported.h"

#include <optional>
#include <string>

#include <pybind11/stl.h>

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using py::operator""_a;

py::object recorded_of(const std::optional<Dtype>& dtype) {
  if (!dtype) return py::none();
  return py::str(std::string(name(*dtype)));
}

py::dict tensor_of(const LoadedTensor& tensor) {
  return py::dict("name"_a = tensor.name, "is_buffer"_a = tensor.is_buffer, "recorded"_a = recorded_of(tensor.recorded),
                  "loaded"_a = tensor.loaded, "bytes"_a = tensor.bytes, "placement"_a = name(tensor.placement),
                  "note"_a = tensor.note, "operand"_a = tensor.operand);
}

}  // namespace

py::dict reported(const LoadReport& report) {
  py::list tensors;
  for (const LoadedTensor& tensor : report.tensors) tensors.append(tensor_of(tensor));
  py::dict versions;
  for (const LibraryVersion& version : report.versions) versions[py::str(version.name)] = version.running;
  return py::dict("tensors"_a = tensors, "notes"_a = report.notes, "policy"_a = report.policy,
                  "operand_dtype"_a = report.operand_dtype, "stream_dtype"_a = report.stream_dtype,
                  "compute"_a = report.compute, "key_values"_a = report.key_values, "device"_a = report.device,
                  "device_reason"_a = report.device_reason, "versions"_a = versions,
                  "is_manifest_derived"_a = report.is_manifest_derived, "verified_tensors"_a = report.verified_tensors,
                  "unhashed_tensors"_a = report.unhashed_tensors);
}

}  // namespace halfbyte::python
