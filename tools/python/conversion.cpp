// halfbyte.quantize, dequantize, verify.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>
#include <halfbyte/verify.h>

#include "convert/conversion.h"
#include "tools/model/calibration_work.h"
#include "tools/python/parts.h"
#include "tools/python/quantize_request.h"
#include "tools/python/running.h"
#include "tools/python/source.h"
#include "tools/python/values.h"
#include "tools/verbs/conversion_json.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using py::operator""_a;

std::vector<std::string> texts_of(const std::vector<Text>& texts) {
  std::vector<std::string> out;
  for (const Text& text : texts) out.push_back(text.str());
  return out;
}

// Steps are told one after another: tokens where it calibrates or measures, then bytes.
nlohmann::ordered_json converted(QuantizeRequest request, const std::filesystem::path& source,
                                 const std::filesystem::path& destination,
                                 const std::function<void(std::uint64_t, std::uint64_t)>& step) {
  convert::QuantizeOptions& options = request.options;
  const auto& [calibrator, sensitivity] = cli::kModelWork;
  if (request.is_calibrated())
    options.calibrator = calibrator(request.calibration, source.string(), options.threads, step);
  if (request.has_target())
    options.sensitivity = sensitivity(request.calibration, source.string(), options.threads, step);
  convert::Conversion conversion = convert::prepare(source, options);
  conversion.options.progress = step;
  const convert::QuantizeSummary summary = convert::run(conversion, destination);
  auto out = cli::conversion_json(source.string(), destination.string(), conversion, summary, cpp_spelling());
  if (!conversion.warning.empty()) out["notes"].push_back(conversion.warning.str());
  return out;
}

py::object quantize(const Source& source, const std::filesystem::path& destination, const py::object& progress,
                    const py::kwargs& given) {
  QuantizeRequest request = request_of(given);
  Running running;
  request.options.stop = running.stop();
  const auto step = [&](std::uint64_t done, std::uint64_t total) { running.step(progress, done, total); };
  const nlohmann::ordered_json made = running.run([&] { return converted(request, source.path, destination, step); });
  running.finish();
  return object_of(made);
}

std::optional<Dtype> dtype_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  const std::optional<Dtype> dtype = dtype_from_name(*name);
  if (!dtype) throw Error(ErrorCode::kInvalidArgument, "dtype '" + *name + "' is not known");
  return dtype;
}

py::dict dequantize(const Source& source, const std::filesystem::path& destination,
                    const std::optional<std::string>& dtype, const std::optional<std::string>& assume_original,
                    int threads, bool overwrite, const py::object& progress) {
  Running running;
  convert::DequantizeOptions options{.dtype = dtype_of(dtype),
                                     .assume_original = dtype_of(assume_original),
                                     .threads = threads,
                                     .overwrite = overwrite};
  options.stop = running.stop();
  options.progress = [&](std::uint64_t done, std::uint64_t total) { running.step(progress, done, total); };
  const convert::DequantizeSummary made =
      running.run([&] { return convert::dequantize(source, destination, options); });
  running.finish();
  return py::dict("source_bytes"_a = made.source_bytes, "result_bytes"_a = made.result_bytes,
                  "dequantized_tensors"_a = made.dequantized_tensors, "cast_tensors"_a = made.cast_tensors,
                  "copied_tensors"_a = made.copied_tensors, "seconds"_a = made.seconds,
                  "notes"_a = texts_of(made.notes), "warnings"_a = texts_of(made.warnings));
}

// A step that raises ends the call.
py::dict verify_checkpoint(const Source& path, const std::string& expect, const py::object& progress) {
  Running running;
  VerifyOptions options{.expect = expect};
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    running.step(progress, done, total);
    running.finish();
  };
  const Verified found = running.run([&] { return verify(path, options); });
  return py::dict("hash"_a = found.hash, "tensors_hashed"_a = found.tensors_hashed,
                  "tensors_unhashed"_a = found.tensors_unhashed, "problems"_a = found.problems);
}

}  // namespace

void add_conversion(py::module_& module) {
  module.def("dequantize", &dequantize, py::arg("source"), py::arg("destination"), py::kw_only(),
             py::arg("dtype") = py::none(), py::arg("assume_original") = py::none(), py::arg("threads") = 0,
             py::arg("overwrite") = false, py::arg("progress") = py::none(),
             "Writes the plain checkpoint back, every tensor in the dtype on record, or all in `dtype`.");
  module.def(
      "verify", &verify_checkpoint, py::arg("path"), py::kw_only(), py::arg("expect") = "",
      py::arg("progress") = py::none(),
      "Reads every byte of a checkpoint and says what is wrong with it: 'problems', empty where nothing is, and\n"
      "its 'hash', which `expect` may ask for.");
  module.def(
      "quantize", &quantize, py::arg("source"), py::arg("destination"), py::kw_only(), py::arg("progress") = py::none(),
      "Writes a 4-bit (or 8-bit) copy of a checkpoint, which appears when it is complete. Options are those of\n"
      "`halfbyte quantize` by their names: scheme=\"sym_int4\", group_size, keep=[patterns], scheme_for={pattern:\n"
      "scheme}, calibrate=\"builtin\" or a file, target_bpw, resume, overwrite ... (halfbyte._options has all).");
}

}  // namespace halfbyte::python
