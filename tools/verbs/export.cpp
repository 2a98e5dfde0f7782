// halfbyte export CKPT DST --to FORMAT
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/export/checkpoint.h"
#include "convert/gguf/export.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

struct Words {
  std::string checkpoint;
  std::string destination;
  std::string format;
  std::string type;
  std::string assume_original;
  bool requantize = false;
  bool overwrite = false;
};

std::vector<std::string> formats() {
  std::vector<std::string> out = convert::export_formats();
  out.insert(out.begin(), {"gguf", "safetensors"});
  return out;
}

void declare(OptionParser& parser, Words& words) {
  parser.add_checkpoint("CKPT", words.checkpoint, "model to read").required();
  parser
      .add_option("DST", words.destination,
                  "what to write: a .gguf file, or a directory; it appears when it is complete")
      .required();
  parser
      .add_option("--to", words.format,
                  "gguf: for llama.cpp; compressed-tensors, gptq, awq (integer schemes), bitsandbytes (nf4, fp4): for "
                  "transformers and vLLM; safetensors: dequantised, every tensor in the dtype it had")
      .check(one_of(formats()))
      .required();
  parser.add_option("--type", words.type, "gguf: how matrices are written (as they are stored, where GGUF can say it)")
      .check(one_of({"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"}));
  parser
      .add_option(
          "--assume-original", words.assume_original,
          "what tensors were of which CKPT does not say it: the dtype of those that are written dense (float32)")
      .check(one_of({"float32", "float16", "bfloat16"}));
  parser.add_flag("--requantize", words.requantize, "allow other numbers where the format cannot say the same");
  parser.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
}

struct Summary {
  ordered_json json;
  std::string line;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

// The bar and Ctrl-C of whatever is exported. Made before OpenMP's threads.
class Watch {
 public:
  explicit Watch(const CommonOptions& common) : progress_("export", !common.is_quiet) { ignore_broken_pipes(); }
  template <class Options>
  void attach(Options& options) {
    options.stop = interrupt_.token();
    options.progress = [this](std::uint64_t done, std::uint64_t total) { progress_.update(done, total); };
  }

 private:
  InterruptWatch interrupt_;
  Progress progress_;
};

// What every export says of itself; `own` and `end` are what the kind of export adds to the object and to the line.
template <class Done>
Summary summary_of(const Words& words, const Done& done, const ordered_json& own, const std::string& end,
                   std::vector<std::string> notes) {
  ordered_json json = {{"source", words.checkpoint},
                       {"destination", words.destination},
                       {"format", words.format},
                       {"source_bytes", done.source_bytes},
                       {"result_bytes", done.result_bytes}};
  json.update(own);
  json["notes"] = notes;
  json["warnings"] = said(done.warnings);
  return {std::move(json), human_bytes(done.source_bytes) + " -> " + human_bytes(done.result_bytes) + end,
          std::move(notes), said(done.warnings)};
}

Summary to_gguf(const Words& words, const CommonOptions& common) {
  if (!words.assume_original.empty()) throw UsageError("--assume-original is for directories; --type chooses for gguf");
  Watch watch(common);
  convert::GgufExportOptions options{.type = words.type, .requantize = words.requantize, .overwrite = words.overwrite};
  watch.attach(options);
  const auto done = convert::export_gguf(words.checkpoint, words.destination, options);
  return summary_of(words, done,
                    {{"exact_tensors", done.exact_tensors}, {"requantized_tensors", done.requantized_tensors}},
                    " (" + counted(done.exact_tensors, "packed tensor") + " with the same numbers, " +
                        std::to_string(done.requantized_tensors) + " quantised again)",
                    done.notes);
}

Summary to_safetensors(const Words& words, const CommonOptions& common) {
  if (!words.type.empty() || words.requantize)
    throw UsageError(
        "--type and --requantize are for formats that quantise; `halfbyte dequantize --dtype` chooses a dtype");
  Watch watch(common);
  convert::DequantizeOptions options;
  options.overwrite = words.overwrite;
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  watch.attach(options);
  const auto done = convert::dequantize(words.checkpoint, words.destination, options);
  return summary_of(words, done, {{"dequantized_tensors", done.dequantized_tensors}},
                    " (" + counted(done.dequantized_tensors, "tensor") + " dequantised)", said(done.notes));
}

std::string end_of_line(const convert::ExportSummary& done) {
  std::string out = " in " + human_seconds(done.seconds) + " (" + counted(done.exact_tensors, "packed tensor") +
                    " with the same numbers";
  if (done.rounded_tensors > 0) out += ", " + std::to_string(done.rounded_tensors) + " with rounded scales";
  if (done.requantized_tensors > 0) out += ", " + std::to_string(done.requantized_tensors) + " quantised again";
  if (done.dequantized_tensors > 0) out += ", " + std::to_string(done.dequantized_tensors) + " dequantised";
  return out + ")";
}

Summary to_packed(const Words& words, const CommonOptions& common) {
  if (!words.type.empty()) throw UsageError("--type is for --to gguf");
  Watch watch(common);
  convert::ExportOptions options{.format = words.format, .requantize = words.requantize, .overwrite = words.overwrite};
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  watch.attach(options);
  const auto done = convert::export_checkpoint(words.checkpoint, words.destination, options);
  const ordered_json own = {{"exact_tensors", done.exact_tensors},
                            {"rounded_tensors", done.rounded_tensors},
                            {"requantized_tensors", done.requantized_tensors},
                            {"dequantized_tensors", done.dequantized_tensors},
                            {"rel_rmse", done.rel_rmse},
                            {"seconds", done.seconds}};
  return summary_of(words, done, own, end_of_line(done), said(done.notes));
}

Summary exported(const Words& words, const CommonOptions& common) {
  if (words.format == "gguf") return to_gguf(words, common);
  return words.format == "safetensors" ? to_safetensors(words, common) : to_packed(words, common);
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  const Summary summary = exported(words, common);
  for (const std::string& note : summary.notes) log_warning(note);
  log_always(summary.warnings);
  common.is_json ? print_json(summary.json) : print_line(summary.line);
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_export(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
