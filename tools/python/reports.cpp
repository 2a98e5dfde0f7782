// halfbyte.export, synth, perplexity: what the program's verbs do, in this process, with the results that --json has.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <nlohmann/json.hpp>

#include <halfbyte/evaluate.h>
#include <halfbyte/load_low_bit.h>

#include "convert/synth_shapes.h"
#include "tools/cli/policy.h"
#include "tools/cli/read_input.h"
#include "tools/model/perplexity_steps.h"
#include "tools/python/parts.h"
#include "tools/python/running.h"
#include "tools/python/source.h"
#include "tools/python/values.h"
#include "tools/verbs/exporting.h"
#include "tools/verbs/synthesis.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using Path = std::filesystem::path;
using Word = std::optional<std::string>;

const std::vector<std::string> kFloats = {"float32", "float16", "bfloat16"};

// A verb's work, for Python.
template <class Work>
py::object outcome_of(const py::object& progress, const Work& work) {
  Running running;
  const cli::Caller caller{
      .stop = running.stop(),
      .progress = [&](std::uint64_t done, std::uint64_t total) { running.step(progress, done, total); },
      .spelling = &cpp_spelling()};
  const cli::Outcome outcome = running.run([&] { return work(caller); });
  running.finish();
  return object_of(*outcome.json);
}

py::object export_checkpoint(const Source& checkpoint, const Path& destination, const std::string& to, const Word& type,
                             bool requantize, bool overwrite, const Word& assume_original, const py::object& progress) {
  cli::ExportWords words{.checkpoint = checkpoint.path.string(),
                         .destination = destination.string(),
                         .format = checked("to", to, cli::one_of(cli::export_formats())),
                         .requantize = requantize,
                         .overwrite = overwrite};
  if (type) words.type = checked("type", *type, cli::one_of(cli::gguf_types()));
  if (assume_original) words.assume_original = checked("assume_original", *assume_original, cli::one_of(kFloats));
  return outcome_of(progress, [&](const cli::Caller& caller) { return cli::export_as(words, caller); });
}

py::object synth(const Path& destination, const std::string& like, const std::optional<Path>& config,
                 std::int64_t layers, const std::string& experts, const Word& dtype, std::uint64_t seed, bool overwrite,
                 const py::object& progress) {
  const std::vector<std::string> shapes(convert::synth_shapes().begin(), convert::synth_shapes().end());
  checked("layers", std::to_string(layers), cli::whole_number(0, INT64_MAX));
  const cli::SynthWords words{.destination = destination.string(),
                              .like = checked("like", like, cli::one_of(shapes)),
                              .config = config ? config->string() : "",
                              .layers = layers,
                              .experts = checked("experts", experts, cli::one_of(cli::experts_names())),
                              .dtype = dtype ? checked("dtype", *dtype, cli::one_of(kFloats)) : "",
                              .seed = seed,
                              .overwrite = overwrite};
  return outcome_of(progress, [&](const cli::Caller& caller) { return cli::synthesise(words, caller); });
}

// A str is the text itself, a path a file that has it.
using TextOrFile = std::variant<std::string, Path>;

std::string text_of(const TextOrFile& given) {
  const Path* const file = std::get_if<Path>(&given);
  if (!file) return std::get<std::string>(given);
  return cli::read_input(*file == "-" ? "./-" : file->string(), cli::kMaxTextBytes);  // no standard input
}

nlohmann::ordered_json measured(const cli::PerplexityWords& words, const TextOrFile& given, Running& running,
                                const py::object& progress) {
  const std::string text = text_of(given);
  const Model model = load_low_bit(words.model.checkpoint, cli::load_options(words.model));
  const auto tokenizer = cli::wanted_tokenizer(words.model.checkpoint);
  const cli::MeasuredText read = cli::measured_text(words, *tokenizer, text);
  const cli::ModelWords original = cli::reference_words(words);
  std::optional<Model> reference;
  if (!words.against.empty()) reference = load_low_bit(original.checkpoint, cli::load_options(original));
  PerplexityOptions options = cli::options_of(words);
  options.stop = running.stop();
  options.progress = [&](std::int64_t done, std::int64_t total) {
    running.step(progress, static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
  };
  const PerplexityResult result = halfbyte::perplexity(model.module(), read.tokens, tokenizer->prefix(), options,
                                                       reference ? &reference->module() : nullptr);
  return cli::json_of(result, read.special.count);
}

py::object perplexity(const Source& checkpoint, const TextOrFile& text, const std::string& dtype, std::int64_t ctx,
                      std::int64_t chunks, const std::string& windows, const std::optional<Source>& against,
                      const std::string& against_dtype, const std::vector<std::string>& keep_float32,
                      bool special_tokens, const py::object& progress) {
  cli::PerplexityWords words;
  words.model.checkpoint = checkpoint.path.string();
  words.model.dtype = checked("dtype", dtype, cli::policy_word());
  words.model.keep_float32 = keep_float32;
  if (against) words.against = against->path.string();
  words.against_dtype = checked("against_dtype", against_dtype, cli::policy_word());
  if (ctx != 0) checked("ctx", std::to_string(ctx), cli::window_size());
  words.context = ctx;
  checked("chunks", std::to_string(chunks), cli::window_count());
  words.chunks = chunks;
  words.windows = checked("windows", windows, cli::window_kind());
  words.parses_special = special_tokens;
  Running running;
  const auto found = running.run([&] { return measured(words, text, running, progress); });
  running.finish();
  return object_of(found);
}

}  // namespace

void add_reports(py::module_& module) {
  const cli::SynthWords synth_words;
  const cli::PerplexityWords words;
  module.def(
      "export", &export_checkpoint, py::arg("checkpoint"), py::arg("destination"), py::arg("to"), py::kw_only(),
      py::arg("type") = py::none(), py::arg("requantize") = false, py::arg("overwrite") = false,
      py::arg("assume_original") = py::none(), py::arg("progress") = py::none(),
      "Writes a checkpoint in another program's format: gguf, safetensors, compressed-tensors, bitsandbytes, gptq,\n"
      "awq. type: of a GGUF file's matrices. requantize: other numbers may be written where the format has no others.");
  module.def("synth", &synth, py::arg("destination"), py::arg("like") = synth_words.like, py::kw_only(),
             py::arg("config") = py::none(), py::arg("layers") = synth_words.layers,
             py::arg("experts") = synth_words.experts, py::arg("dtype") = py::none(),
             py::arg("seed") = synth_words.seed, py::arg("overwrite") = false, py::arg("progress") = py::none(),
             "Writes random weights of a published model's shape, or a config's: the same bytes for the same seed.");
  module.def(
      "perplexity", &perplexity, py::arg("checkpoint"), py::arg("text"), py::kw_only(),
      py::arg("dtype") = words.model.dtype, py::arg("ctx") = words.context, py::arg("chunks") = words.chunks,
      py::arg("windows") = words.windows, py::arg("against") = py::none(),
      py::arg("against_dtype") = words.against_dtype, py::arg("keep_float32") = std::vector<std::string>{},
      py::arg("special_tokens") = false, py::arg("progress") = py::none(),
      "How well a checkpoint predicts a text (a str is the text itself, a pathlib.Path a file of it), and how far it\n"
      "is from `against`. ctx: tokens a window; 0: 512, or what there is room for. chunks: most windows; 0: all.");
}

}  // namespace halfbyte::python
