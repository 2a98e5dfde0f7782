// halfbyte.load_low_bit and what it gives.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl/filesystem.h>

#include <halfbyte/adapter.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "tools/cli/parse.h"
#include "tools/text/model_words.h"
#include "tools/python/parts.h"
#include "tools/python/reported.h"
#include "tools/python/running.h"
#include "tools/python/source.h"
#include "tools/python/values.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;

// A model, and adapters that its passes have.
struct LoadedModel {
  Model model;
  std::optional<convert::Adapters> adapters = {};

  // For the thread that runs them.
  std::shared_ptr<const void> beside() const { return adapters ? adapters->enter() : nullptr; }
};

LoadedModel load(const Source& path, const std::string& dtype, const std::string& device,
                 const std::vector<std::string>& keep_float32, const py::dict& dtype_for, const std::string& compute,
                 const std::string& key_values, bool verify,
                 const std::vector<std::pair<std::filesystem::path, double>>& adapters) {
  cli::ModelWords words;
  words.dtype = dtype;
  words.device = device;
  words.keep_float32 = keep_float32;
  words.verify = verify;
  words.compute = checked("compute", compute, cli::one_of(cli::compute_words()));
  words.key_values = checked("key_values", key_values, cli::one_of({"auto", "int8"}));
  for (const auto& [pattern, policy] : dtype_for)
    words.dtype_for.push_back(pattern.cast<std::string>() + "=" + policy.cast<std::string>());
  const LoadOptions options = cli::load_options(words);
  std::vector<convert::WeightedAdapter> beside;
  for (const auto& [directory, weight] : adapters) beside.push_back({directory, weight});
  Running running;
  return running.run([&] {
    LoadedModel out{load_low_bit(path, options)};
    if (!beside.empty()) out.adapters.emplace(out.model, beside);
    return out;
  });
}

std::vector<TokenIds> generate(const LoadedModel& loaded, const std::vector<TokenIds>& prompts,
                               std::int64_t max_gen_len, double temperature, double top_p, std::int64_t top_k,
                               double min_p, double repetition_penalty, std::uint64_t seed, bool ignore_eos,
                               const TokenIds& stop_tokens, const py::object& on_token) {
  Running running;
  GenerateOptions options{.max_gen_len = max_gen_len,
                          .temperature = temperature,
                          .top_p = top_p,
                          .top_k = top_k,
                          .min_p = min_p,
                          .repetition_penalty = repetition_penalty,
                          .seed = seed,
                          .ignore_eos = ignore_eos,
                          .stop_tokens = stop_tokens,
                          .stop = running.stop()};
  options.on_token = [&](std::size_t prompt, std::int64_t token) {
    return running.asked([&] { return on_token.is_none() || !on_token(prompt, token).is(py::bool_(false)); });
  };
  std::vector<TokenIds> out;
  const auto generated = [&] {
    const auto beside = loaded.beside();
    return loaded.model.generate(prompts, options);
  };
  for (Generation& one : running.run(generated)) out.push_back(std::move(one.tokens));
  running.finish();
  return out;
}

// Shape: int64 (rows, tokens) -> float32 (rows, tokens, vocab_size).
at::Tensor logits(const LoadedModel& loaded, const at::Tensor& tokens) {
  Running running;
  return running.run([&] {
    const at::NoGradGuard no_gradients;
    const auto beside = loaded.beside();
    return loaded.model.module().forward(tokens);
  });
}

}  // namespace

void add_model(py::module_& module) {
  py::class_<LoadedModel>(module, "CausalLM")
      .def("generate", &generate, py::arg("prompts"), py::kw_only(), py::arg("max_gen_len"), py::arg("temperature"),
           py::arg("top_p"), py::arg("top_k"), py::arg("min_p"), py::arg("repetition_penalty"), py::arg("seed"),
           py::arg("ignore_eos"), py::arg("stop_tokens"), py::arg("on_token"))
      .def("logits", &logits, py::arg("tokens"))
      .def_property_readonly("report", [](const LoadedModel& loaded) { return reported(loaded.model.report()); });
  module.def("load_low_bit", &load, py::arg("path"), py::arg("dtype"), py::kw_only(), py::arg("device"),
             py::arg("keep_float32"), py::arg("dtype_for"), py::arg("compute"), py::arg("key_values"),
             py::arg("verify"), py::arg("adapters"));
}

}  // namespace halfbyte::python
