// halfbyte merge CKPT ADAPTER OUT
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/merge.h>

#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/cli/weighted_adapter.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

using convert::MergeSummary;
using nlohmann::ordered_json;

struct Words {
  std::string checkpoint, adapter, destination;
  std::vector<std::string> more;
  std::string assume_original, shard_size;
  std::string memory_limit = "512MiB";
  convert::MergeOptions options;
};

void declare(OptionParser& parser, Words& words) {
  convert::MergeOptions& options = words.options;
  parser.add_checkpoint("CKPT", words.checkpoint, "model that the adapter is for, quantised or not").required();
  parser.add_option("ADAPTER", words.adapter, "what peft or finetune wrote: DIR, or DIR:WEIGHT").required();
  parser.add_option("OUT", words.destination, "directory to write; it appears when it is complete").required();
  declare_adapters(parser, words.more, "a further adapter, and how much of it; repeatable");
  parser.add_flag("--dequantize", options.dequantize, "write a plain checkpoint, every tensor in the dtype it had");
  parser.add_option("--assume-original", words.assume_original, "what tensors were of which CKPT does not say it")
      .check(one_of({"float32", "float16", "bfloat16"}));
  parser.add_option("--threads", options.threads, "0: one a core").check(whole_number(0, 4096)).show_default();
  parser.add_option("--memory-limit", words.memory_limit, "what the program takes at most, about")
      .type_name("SIZE")
      .check(byte_size())
      .show_default();
  parser
      .add_option("--shard-size", words.shard_size, "split the result into files of this many bytes (as CKPT is split)")
      .type_name("SIZE")
      .check(byte_size());
  parser.add_flag("--resume", options.resume, "go on where a killed or interrupted run stopped (OUT.partial)");
  parser.add_flag("--restart", options.restart,
                  "begin anew where --resume could go on: what OUT.partial holds is deleted");
  parser.add_flag("--overwrite", options.overwrite, "replace OUT when it exists");
}

std::vector<convert::WeightedAdapter> adapters_of(const Words& words) {
  std::vector<std::string> all{words.adapter};
  all.insert(all.end(), words.more.begin(), words.more.end());
  return weighted_adapters<convert::WeightedAdapter>(all);
}

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json json_of(const Words& words, const MergeSummary& done) {
  ordered_json adapters = ordered_json::array();
  for (const auto& [directory, weight] : adapters_of(words))
    adapters.push_back({{"directory", directory.string()}, {"weight", weight}});
  const bool has_error = done.change && !words.options.dequantize;
  return {{"checkpoint", words.checkpoint},
          {"adapters", std::move(adapters)},
          {"destination", words.destination},
          {"dequantize", words.options.dequantize},
          {"source_bytes", done.result.source_bytes},
          {"result_bytes", done.result.result_bytes},
          {"merged_tensors", done.merged_tensors},
          {"quantized_tensors", done.result.quantized_tensors},
          {"resumed_bytes", done.result.resumed_bytes},
          {"was_complete", done.result.was_complete},
          {"change", or_null(done.change)},
          {"rounding", or_null(done.rounding)},
          {"rel_rmse", has_error ? ordered_json(done.result.rel_rmse) : ordered_json(nullptr)},
          {"seconds", done.result.seconds},
          {"notes", said(done.result.notes)},
          {"warnings", said(done.result.warnings)}};
}

// "110.2 MB -> 40.1 MB in 2 s (28 tensors merged, changed by 0.031; quantised again: relative error 0.082)".
std::string line_of(const Words& words, const MergeSummary& done) {
  if (done.result.was_complete) return printable(words.destination) + " is complete already; nothing was done";
  std::string line = human_bytes(done.result.source_bytes) + " -> " + human_bytes(done.result.result_bytes) + " in " +
                     human_seconds(done.result.seconds) + " (" + counted(done.merged_tensors, "tensor") +
                     " merged, changed by " + fixed(*done.change, 4);
  if (done.result.quantized_tensors > 0)
    line += "; " + std::to_string(done.result.quantized_tensors) + " quantised again, relative error " +
            fixed(done.result.rel_rmse, 4);
  else
    line += "; rounded by " + fixed(*done.rounding, 4);
  if (words.options.resume) line += "; " + human_bytes(done.result.resumed_bytes) + " were done before";
  return line + ")";
}

MergeSummary merge_with_progress(Words& words, const CommonOptions& common) {
  ignore_broken_pipes();
  const InterruptWatch interrupt;  // before OpenMP's threads
  convert::MergeOptions& options = words.options;
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  if (!words.shard_size.empty()) options.shard_size = parse_bytes(words.shard_size);
  options.memory_limit = parse_bytes(words.memory_limit);
  options.spelling = command_line();
  options.stop = interrupt.token();
  Progress progress("merge", !common.is_quiet);
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  return convert::merge(words.checkpoint, adapters_of(words), words.destination, options);
}

ExitStatus run(Words& words, const CommonOptions& common) {
  const MergeSummary done = merge_with_progress(words, common);
  for (const Text& note : done.result.notes) log_warning(said(note));
  log_always(said(done.result.warnings));
  common.is_json ? print_json(json_of(words, done)) : print_line(line_of(words, done));
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_merge(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli
