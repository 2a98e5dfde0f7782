// halfbyte.quantize_state_dict: tensors in memory to a checkpoint.
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl/filesystem.h>
#include <nlohmann/json.hpp>

#include "convert/conversion.h"
#include "convert/memory_checkpoint.h"
#include "models/json/printable.h"
#include "quant/operators/torch_dtype.h"
#include "tools/python/parts.h"
#include "tools/python/quantize_request.h"
#include "tools/python/running.h"
#include "tools/python/values.h"
#include "tools/verbs/conversion_json.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

Dtype dtype_of(const std::string& name, const at::Tensor& tensor) {
  if (const auto dtype = from_torch(tensor.scalar_type())) return *dtype;
  throw Error(ErrorCode::kUnsupported,
              "tensor " + in_quotes(name) + ": files have no " + std::string(c10::toString(tensor.scalar_type())));
}

struct PartField {
  const char* name;
  Part part;
};
constexpr PartField kParts[] = {{"codes", Part::kCodes},           {"scales", Part::kScale},
                                {"zero_points", Part::kZeroPoint}, {"offsets", Part::kOffset},
                                {"row_scales", Part::kRowScale},   {"column_order", Part::kColumnOrder}};

// `fields`: those of a halfbyte.LowBitTensor, its tensors contiguous and on the CPU.
convert::MemoryPackedTensor packed_of(const std::string& name, const py::dict& fields) {
  convert::MemoryPackedTensor out;
  out.name = name;
  out.scheme = find_scheme(fields["scheme"].cast<std::string>());
  out.group_size = fields["group_size"].cast<std::int64_t>();
  out.original_dtype = from_torch(fields["dtype"].cast<at::ScalarType>());
  for (const PartField& row : kParts) {
    if (!fields.contains(row.name) || fields[row.name].is_none()) continue;
    const auto tensor = fields[row.name].cast<at::Tensor>();
    out.parts[static_cast<std::size_t>(row.part)] = bytes_of(tensor);
    if (row.part == Part::kScale) out.scale_dtype = dtype_of(name, tensor);
    if (row.part == Part::kCodes) out.shape = {tensor.size(0), fields["in_features"].cast<std::int64_t>()};
  }
  return out;
}

// `tensors` holds what they refer to.
convert::MemorySource source_of(const py::dict& tensors) {
  convert::MemorySource out;
  for (const auto& [key, value] : tensors) {
    const auto name = key.cast<std::string>();
    if (py::isinstance<py::dict>(value)) {
      out.packed.push_back(packed_of(name, value.cast<py::dict>()));
    } else {
      const auto tensor = value.cast<at::Tensor>();
      out.tensors.push_back({name, dtype_of(name, tensor), tensor.sizes().vec(), bytes_of(tensor)});
    }
  }
  return out;
}

py::object quantize_tensors(const py::dict& tensors, const std::filesystem::path& destination,
                            const std::string& config, const std::map<std::string, py::bytes>& files,
                            const py::object& progress, const py::kwargs& given) {
  QuantizeRequest request = request_of(given);
  if (request.options.resume)
    throw Error(ErrorCode::kInvalidArgument, "resume: there is no file of tensors in memory to go on from");
  if (request.is_calibrated() || request.has_target())
    throw Error(
        ErrorCode::kUnsupported,
        "tensors in memory are neither calibrated nor measured; write them first, and quantise what was written");
  convert::MemorySource source = source_of(tensors);
  source.config = config;
  for (const auto& [name, bytes] : files) source.files.emplace(name, std::string(bytes));
  Running running;
  request.options.stop = running.stop();
  request.options.progress = [&](std::uint64_t done, std::uint64_t total) { running.step(progress, done, total); };
  const nlohmann::ordered_json made = running.run([&] {
    const convert::Conversion conversion = convert::prepare(convert::checkpoint_of(source), request.options);
    const convert::QuantizeSummary summary = convert::run(conversion, destination);
    return cli::conversion_json("tensors in memory", destination.string(), conversion, summary, cpp_spelling());
  });
  running.finish();
  return object_of(made);
}

}  // namespace

void add_memory(py::module_& module) {
  module.def("quantize_state_dict", &quantize_tensors, py::arg("tensors"), py::arg("destination"), py::kw_only(),
             py::arg("config"), py::arg("files"), py::arg("progress"));
}

}  // namespace halfbyte::python
