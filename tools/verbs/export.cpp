// halfbyte export CKPT DST --to FORMAT
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/export_gguf.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

struct Words {
  std::string checkpoint;
  std::string destination;
  std::string format;
  std::string type;
  bool requantize = false;
  bool overwrite = false;
};

void declare(CLI::App& app, Words& words) {
  app.add_option("CKPT", words.checkpoint, "model to read")->required();
  app.add_option("DST", words.destination,
                 "what to write: a .gguf file, or a directory; it appears when it is complete")
      ->required();
  app.add_option("--to", words.format,
                 "gguf: for llama.cpp; safetensors: dequantised, every tensor in the dtype it had")
      ->check(one_of({"gguf", "safetensors"}))
      ->required();
  app.add_option("--type", words.type, "gguf: how matrices are written (as they are stored, where GGUF can say it)")
      ->check(one_of({"F32", "F16", "BF16", "Q8_0", "Q4_0"}));
  app.add_flag("--requantize", words.requantize, "allow other numbers where the format cannot say the same");
  app.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
}

struct Summary {
  ordered_json json;
  std::string line;
  std::vector<std::string> notes;
};

Summary to_gguf(const Words& words) {
  const auto done =
      convert::export_gguf(words.checkpoint, words.destination,
                           {.type = words.type, .requantize = words.requantize, .overwrite = words.overwrite});
  ordered_json json = {{"source", words.checkpoint},
                       {"destination", words.destination},
                       {"format", words.format},
                       {"source_bytes", done.source_bytes},
                       {"result_bytes", done.result_bytes},
                       {"exact_tensors", done.exact_tensors},
                       {"requantized_tensors", done.requantized_tensors},
                       {"notes", done.notes}};
  std::string line = human_bytes(done.source_bytes) + " -> " + human_bytes(done.result_bytes) + " (" +
                     counted(done.exact_tensors, "packed tensor") + " with the same numbers, " +
                     std::to_string(done.requantized_tensors) + " quantised again)";
  return {std::move(json), std::move(line), done.notes};
}

Summary to_safetensors(const Words& words, const CommonOptions& common) {
  if (!words.type.empty() || words.requantize)
    throw UsageError("--type and --requantize are for --to gguf; `halfbyte dequantize --dtype` chooses a dtype");
  const InterruptWatch interrupt;  // before OpenMP's threads
  Progress progress("export", !common.is_quiet);
  convert::DequantizeOptions options;
  options.overwrite = words.overwrite;
  options.stop = interrupt.token();
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  const auto done = convert::dequantize(words.checkpoint, words.destination, options);
  ordered_json json = {{"source", words.checkpoint},
                       {"destination", words.destination},
                       {"format", words.format},
                       {"source_bytes", done.source_bytes},
                       {"result_bytes", done.result_bytes},
                       {"dequantized_tensors", done.dequantized_tensors},
                       {"notes", done.notes}};
  std::string line = human_bytes(done.source_bytes) + " -> " + human_bytes(done.result_bytes) + " (" +
                     counted(done.dequantized_tensors, "tensor") + " dequantised)";
  return {std::move(json), std::move(line), done.notes};
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  const Summary summary = words.format == "gguf" ? to_gguf(words) : to_safetensors(words, common);
  for (const std::string& note : summary.notes) log_warning(note);
  common.is_json ? print_json(summary.json) : print_line(summary.line);
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_export(CLI::App& app, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(app, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
