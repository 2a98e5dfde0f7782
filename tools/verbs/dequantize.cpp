// halfbyte dequantize CKPT DST
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

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

constexpr const char* kRecorded = "recorded";

struct Words {
  std::string checkpoint;
  std::string destination;
  std::string dtype = kRecorded;
  std::string assume_original;
  int threads = 0;
  bool overwrite = false;
};

void declare(OptionParser& parser, Words& words) {
  parser.add_checkpoint("CKPT", words.checkpoint, "model to read; an original one is copied, or cast").required();
  parser.add_option("DST", words.destination, "directory to write; it appears when it is complete").required();
  parser.add_option("--dtype", words.dtype, "of floating tensors: what each one was, or one dtype for all")
      .check(one_of({kRecorded, "float32", "float16", "bfloat16"}))
      .show_default();
  parser
      .add_option("--assume-original", words.assume_original,
                  "what tensors were of which CKPT does not say it (float32)")
      .check(one_of({"float32", "float16", "bfloat16"}));
  parser.add_option("--threads", words.threads, "0: one a core").check(whole_number(0, 4096)).show_default();
  parser.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
}

convert::DequantizeSummary dequantize_with_progress(const Words& words, const CommonOptions& common) {
  ignore_broken_pipes();
  const InterruptWatch interrupt;  // before OpenMP's threads
  Progress progress("dequantize", !common.is_quiet);
  convert::DequantizeOptions options;
  if (words.dtype != kRecorded) options.dtype = dtype_from_name(words.dtype);
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  options.threads = words.threads;
  options.overwrite = words.overwrite;
  options.stop = interrupt.token();
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  return convert::dequantize(words.checkpoint, words.destination, options);
}

nlohmann::ordered_json json_of(const Words& words, const convert::DequantizeSummary& summary) {
  return {{"source", words.checkpoint},
          {"destination", words.destination},
          {"dtype", words.dtype},
          {"source_bytes", summary.source_bytes},
          {"result_bytes", summary.result_bytes},
          {"dequantized_tensors", summary.dequantized_tensors},
          {"cast_tensors", summary.cast_tensors},
          {"copied_tensors", summary.copied_tensors},
          {"seconds", summary.seconds},
          {"notes", said(summary.notes)},
          {"warnings", said(summary.warnings)}};
}

std::string done_line(const convert::DequantizeSummary& summary) {
  std::string line = human_bytes(summary.source_bytes) + " -> " + human_bytes(summary.result_bytes) + " in " +
                     human_seconds(summary.seconds) + " (" + counted(summary.dequantized_tensors, "tensor") +
                     " dequantised, ";
  if (summary.cast_tensors > 0) line += std::to_string(summary.cast_tensors) + " cast, ";
  return line + std::to_string(summary.copied_tensors) + " copied)";
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  const convert::DequantizeSummary summary = dequantize_with_progress(words, common);
  for (const Text& note : summary.notes) log_warning(said(note));
  log_always(said(summary.warnings));
  if (common.is_json) {
    print_json(json_of(words, summary));
  } else {
    print_line(done_line(summary));
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_dequantize(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
