// halfbyte.quantize, dequantize, verify.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <halfbyte/convert.h>
#include <halfbyte/verify.h>

#include "tools/python/parts.h"
#include "tools/python/running.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using py::operator""_a;

std::vector<std::string> texts_of(const std::vector<Text>& texts) {
  std::vector<std::string> out;
  for (const Text& text : texts) out.push_back(text.str());
  return out;
}

py::dict dict_of(const convert::QuantizeSummary& summary) {
  return py::dict("source_bytes"_a = summary.source_bytes, "result_bytes"_a = summary.result_bytes,
                  "quantized_tensors"_a = summary.quantized_tensors, "kept_tensors"_a = summary.kept_tensors,
                  "rel_rmse"_a = summary.rel_rmse, "seconds"_a = summary.seconds, "notes"_a = texts_of(summary.notes),
                  "warnings"_a = texts_of(summary.warnings));
}

using convert::QuantizeOptions;

template <auto kField>
void set(QuantizeOptions& options, py::handle value) {
  options.*kField = value.cast<std::remove_reference_t<decltype(options.*kField)>>();
}

void set_scheme_for(QuantizeOptions& options, py::handle value) {
  for (const auto& [pattern, scheme] : value.cast<py::dict>())
    options.scheme_for.emplace_back(pattern.cast<std::string>(), scheme.cast<std::string>());
}

// Names are the fields' own; what is not named keeps its default.
struct OptionRow {
  std::string_view name;
  void (*set)(QuantizeOptions& options, py::handle value);
};
constexpr OptionRow kOptions[] = {{"scheme", set<&QuantizeOptions::scheme>},
                                  {"group_size", set<&QuantizeOptions::group_size>},
                                  {"keep", set<&QuantizeOptions::keep>},
                                  {"scheme_for", set_scheme_for},
                                  {"embedding", set<&QuantizeOptions::embedding>},
                                  {"head", set<&QuantizeOptions::head>},
                                  {"halfbyte_only", set<&QuantizeOptions::halfbyte_only>},
                                  {"nested_scales", set<&QuantizeOptions::nested_scales>},
                                  {"threads", set<&QuantizeOptions::threads>},
                                  {"memory_limit", set<&QuantizeOptions::memory_limit>},
                                  {"shard_size", set<&QuantizeOptions::shard_size>},
                                  {"requantize", set<&QuantizeOptions::requantize>},
                                  {"overwrite", set<&QuantizeOptions::overwrite>},
                                  {"resume", set<&QuantizeOptions::resume>},
                                  {"restart", set<&QuantizeOptions::restart>}};

QuantizeOptions options_of(const py::kwargs& given) {
  QuantizeOptions out;
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    const auto* const row = std::ranges::find(kOptions, name, &OptionRow::name);
    if (row == std::end(kOptions)) throw py::type_error("quantize() got an unexpected keyword argument '" + name + "'");
    try {
      row->set(out, value);
    } catch (const py::cast_error&) {
      throw py::type_error("quantize(): '" + name + "' cannot be a " +
                           py::type::of(value).attr("__name__").cast<std::string>());
    }
  }
  return out;
}

py::dict quantize(const std::filesystem::path& source, const std::filesystem::path& destination,
                  const py::object& progress, const py::kwargs& given) {
  QuantizeOptions options = options_of(given);
  Running running;
  options.stop = running.stop();
  options.progress = [&](std::uint64_t done, std::uint64_t total) { running.step(progress, done, total); };
  const convert::QuantizeSummary made = running.run([&] { return convert::quantize(source, destination, options); });
  running.finish();
  return dict_of(made);
}

std::optional<Dtype> dtype_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  const std::optional<Dtype> dtype = dtype_from_name(*name);
  if (!dtype) throw Error(ErrorCode::kInvalidArgument, "dtype '" + *name + "' is not known");
  return dtype;
}

py::dict dequantize(const std::filesystem::path& source, const std::filesystem::path& destination,
                    const std::optional<std::string>& dtype, int threads, bool overwrite, const py::object& progress) {
  Running running;
  convert::DequantizeOptions options{.dtype = dtype_of(dtype), .threads = threads, .overwrite = overwrite};
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
py::dict verify_checkpoint(const std::filesystem::path& path, const std::string& expect, const py::object& progress) {
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
             py::arg("dtype") = py::none(), py::arg("threads") = 0, py::arg("overwrite") = false,
             py::arg("progress") = py::none());
  module.def("verify", &verify_checkpoint, py::arg("path"), py::kw_only(), py::arg("expect") = "",
             py::arg("progress") = py::none());
  module.def("quantize", &quantize, py::arg("source"), py::arg("destination"), py::kw_only(),
             py::arg("progress") = py::none());
}

}  // namespace halfbyte::python
