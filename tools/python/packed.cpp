#include "tools/python/packed.h"

#include <optional>
#include <string>

#include <torch/csrc/utils/pybind.h>

#include <halfbyte/error.h>

namespace halfbyte::python {

namespace py = pybind11;
using py::operator""_a;

py::dict fields_of(const LowBitTensor& tensor) {
  return py::dict("codes"_a = tensor.codes, "scales"_a = tensor.scales, "scheme"_a = std::string(tensor.scheme->name),
                  "in_features"_a = tensor.in_features, "group_size"_a = tensor.group_size, "dtype"_a = tensor.dtype,
                  "zero_points"_a = tensor.zero_points, "offsets"_a = tensor.offsets,
                  "row_scales"_a = tensor.row_scales, "column_order"_a = tensor.column_order);
}

LowBitTensor tensor_of(const py::dict& fields) {
  const auto part = [&](const char* name) {
    return fields.contains(name) ? fields[name].cast<std::optional<at::Tensor>>() : std::nullopt;
  };
  LowBitTensor out;
  const auto scheme = fields["scheme"].cast<std::string>();
  out.scheme = find_scheme(scheme);
  if (!out.scheme) throw Error(ErrorCode::kInvalidArgument, "there is no scheme '" + scheme + "'");
  out.codes = fields["codes"].cast<at::Tensor>();
  out.scales = fields["scales"].cast<at::Tensor>();
  out.in_features = fields["in_features"].cast<std::int64_t>();
  out.group_size = fields["group_size"].cast<std::int64_t>();
  out.dtype = fields["dtype"].cast<at::ScalarType>();
  out.zero_points = part("zero_points");
  out.offsets = part("offsets");
  out.row_scales = part("row_scales");
  out.column_order = part("column_order");
  return out;
}

}  // namespace halfbyte::python
