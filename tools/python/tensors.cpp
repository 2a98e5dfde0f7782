// Tensors of checkpoints, and packed ones: halfbyte._halfbyte's side of load_state, quantize_tensor and torch.ops.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl/filesystem.h>

#include <halfbyte/linear.h>
#include <halfbyte/load_state.h>
#include <halfbyte/operators.h>
#include <halfbyte/quantize_tensor.h>

#include "loader/files/manifest.h"
#include "tools/python/packed.h"
#include "tools/python/parts.h"
#include "tools/python/reported.h"
#include "tools/python/running.h"
#include "tools/python/source.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;

py::object value_of(const StateTensor& tensor) {
  if (tensor.is_low_bit()) return fields_of(tensor.low_bit());
  return py::cast(tensor.dense());
}

py::tuple load(const Source& path, const std::string& dtype, const std::vector<std::string>& keep_float32,
               bool dequantize, const std::string& device, bool verify) {
  StateOptions options{.dtype = DtypePolicy::parse(dtype), .keep_float32 = keep_float32};
  options.dequantize = dequantize;
  options.device = Device::parse(device);
  if (verify) options.verify = Verification::kHashes;
  Running running;
  const State state = running.run([&] { return load_state(path, options); });
  py::dict tensors;
  for (const auto& [name, tensor] : state) {
    tensors[py::str(name)] = py::make_tuple(
        value_of(tensor), tensor.is_buffer,
        tensor.recorded ? py::object(py::str(std::string(halfbyte::name(*tensor.recorded)))) : py::none(),
        tensor.tied_to);
  }
  return py::make_tuple(tensors, reported(state.report));
}

std::optional<quant::Search> search_of(const std::optional<std::string>& word) {
  if (!word) return std::nullopt;
  for (const quant::SearchName& row : quant::searches()) {
    if (row.name == *word) return row.search;
  }
  throw Error(ErrorCode::kInvalidArgument, "there is no search '" + *word + "'");
}

py::dict quantize(const at::Tensor& weight, const std::string& scheme, std::optional<std::int64_t> group_size,
                  const std::optional<std::string>& search) {
  const convert::QuantizeTensorOptions options{scheme, group_size, search_of(search)};
  Running running;
  return fields_of(running.run([&] { return convert::quantize_tensor(weight, options); }));
}

}  // namespace

void add_tensors(py::module_& module) {
  operators::register_operators();  // torch.ops.halfbyte
  module.def("load_state", &load, py::arg("path"), py::kw_only(), py::arg("dtype"), py::arg("keep_float32"),
             py::arg("dequantize"), py::arg("device"), py::arg("verify"));
  module.def("is_int8_fast", &quant::is_int8_fast);
  module.def("matches_pattern", &files::matches_pattern, py::arg("pattern"), py::arg("name"));
  module.def("quantize_tensor", &quantize, py::arg("weight"), py::arg("scheme"), py::arg("group_size"),
             py::arg("search"));
}

}  // namespace halfbyte::python
