// halfbyte export CKPT DST --to FORMAT
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/verbs/exporting.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

void declare(OptionParser& parser, ExportWords& words) {
  parser.add_checkpoint("CKPT", words.checkpoint, "model to read").required();
  parser
      .add_option("DST", words.destination,
                  "what to write: a .gguf file, or a directory; it appears when it is complete")
      .required();
  parser
      .add_option("--to", words.format,
                  "gguf: for llama.cpp; compressed-tensors, gptq, awq (integer schemes), bitsandbytes (nf4, fp4): for "
                  "transformers and vLLM; safetensors: dequantised, every tensor in the dtype it had")
      .check(one_of(export_formats()))
      .required();
  parser.add_option("--type", words.type, "gguf: how matrices are written (as they are stored, where GGUF can say it)")
      .check(one_of(gguf_types()));
  parser
      .add_option(
          "--assume-original", words.assume_original,
          "what tensors were of which CKPT does not say it: the dtype of those that are written dense (float32)")
      .check(one_of({"float32", "float16", "bfloat16"}));
  parser.add_flag("--requantize", words.requantize, "allow other numbers where the format cannot say the same");
  parser.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
}

Outcome exported(const ExportWords& words, const CommonOptions& common) {
  ignore_broken_pipes();
  const InterruptWatch interrupt;  // before OpenMP's threads
  Progress progress("export", !common.is_quiet);
  return export_as(words, {.stop = interrupt.token(),
                           .progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }});
}

ExitStatus run(const ExportWords& words, const CommonOptions& common) {
  const Outcome outcome = exported(words, common);
  for (const std::string& note : outcome.notes) log_warning(note);
  log_always(outcome.warnings);
  common.is_json ? print_json(*outcome.json) : print_line(outcome.line);
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_export(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<ExportWords>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
