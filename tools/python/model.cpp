// halfbyte.load_low_bit and what it gives.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <halfbyte/load_low_bit.h>

#include "tools/python/parts.h"
#include "tools/python/running.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;

Model load(const std::filesystem::path& path, const std::string& dtype, const std::string& device,
           const std::vector<std::string>& keep_float32, bool verify) {
  LoadOptions options{.dtype = DtypePolicy::parse(dtype), .keep_float32 = keep_float32};
  options.device = Device::parse(device);
  if (verify) options.verify = Verification::kHashes;
  Running running;
  return running.run([&] { return load_low_bit(path, options); });
}

std::vector<TokenIds> generate(const Model& model, const std::vector<TokenIds>& prompts, std::int64_t max_gen_len,
                               double temperature, double top_p, std::int64_t top_k, std::uint64_t seed,
                               bool ignore_eos, const TokenIds& stop_tokens, const py::object& on_token) {
  GenerateOptions options{.max_gen_len = max_gen_len, .temperature = temperature, .top_p = top_p, .top_k = top_k};
  options.seed = seed;
  options.ignore_eos = ignore_eos;
  Running running;
  options.stop = running.stop();
  options.stop_tokens = stop_tokens;
  options.on_token = [&](std::size_t prompt, std::int64_t token) {
    return running.asked([&] { return on_token.is_none() || !on_token(prompt, token).is(py::bool_(false)); });
  };
  std::vector<TokenIds> out;
  for (Generation& one : running.run([&] { return model.generate(prompts, options); }))
    out.push_back(std::move(one.tokens));
  running.finish();
  return out;
}

py::list tensors_of(const LoadReport& report) {
  using py::operator""_a;
  py::list out;
  for (const LoadedTensor& tensor : report.tensors)
    out.append(py::dict("name"_a = tensor.name, "loaded"_a = tensor.loaded, "bytes"_a = tensor.bytes,
                        "placement"_a = name(tensor.placement), "note"_a = tensor.note));
  return out;
}

}  // namespace

void add_model(py::module_& module) {
  py::class_<Model>(module, "CausalLM")
      .def("generate", &generate, py::arg("prompts"), py::kw_only(), py::arg("max_gen_len") = 64,
           py::arg("temperature") = 0.6, py::arg("top_p") = 0.9, py::arg("top_k") = 0, py::arg("seed") = 0,
           py::arg("ignore_eos") = false, py::arg("stop_tokens") = TokenIds{}, py::arg("on_token") = py::none())
      .def_property_readonly("policy", [](const Model& model) { return model.report().policy; })
      .def_property_readonly("compute", [](const Model& model) { return model.report().compute; })
      .def_property_readonly("tensors", [](const Model& model) { return tensors_of(model.report()); });
  module.def("load_low_bit", &load, py::arg("path"), py::arg("dtype") = "amp:bfloat16", py::kw_only(),
             py::arg("device") = "cpu", py::arg("keep_float32") = std::vector<std::string>{},
             py::arg("verify") = false);
}

}  // namespace halfbyte::python
