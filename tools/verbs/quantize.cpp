// halfbyte quantize SRC DST
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>
#include <halfbyte/scheme.h>

#include "convert/calibrator.h"
#include "convert/conversion.h"
#include "convert/shares.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/launcher.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/rank_processes.h"
#include "tools/cli/scheme_names.h"
#include "tools/cli/spelling.h"
#include "tools/verbs/calibration_words.h"
#include "tools/verbs/conversion_json.h"
#include "tools/verbs/plan_output.h"
#include "tools/verbs/quantize_report.h"

namespace halfbyte::cli {
namespace {

struct Words {
  std::string source;
  std::string destination;
  std::string scheme = convert::kDefaultScheme;
  std::string group_size = std::to_string(convert::kDefaultGroupSize);
  std::string search{quant::searches().front().name};
  std::vector<std::string> keep;
  std::vector<std::string> scheme_for;
  std::string embedding;
  std::string head;
  int threads = 0;
  std::string memory_limit = "512MiB";
  std::string shard_size;
  std::string assume_original;
  std::string report;
  std::string part;
  bool finish = false;
  bool nested_scales = false;
  bool halfbyte_only = false;
  bool keep_packed = false;
  bool overwrite = false;
  bool resume = false;
  bool restart = false;
  bool dry_run = false;
  CalibrationWords calibration;
  BudgetWords budget;
};

// Those that no other program reads.
std::string own_schemes() {
  std::string out;
  for (const Scheme& scheme : schemes()) {
    if (!scheme.has_foreign_readers) out += (out.empty() ? "" : ", ") + std::string(scheme.name);
  }
  return out;
}

std::vector<std::string> group_size_names() {
  std::vector<std::string> names;
  for (const std::int64_t size : kGroupSizes) names.push_back(std::to_string(size));
  names.emplace_back("channel");
  return names;
}

std::vector<std::string> search_names() {
  std::vector<std::string> names;
  for (const quant::SearchName& row : quant::searches()) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> scheme_names_and_keep() {
  std::vector<std::string> names = scheme_names();
  names.emplace_back("keep");
  return names;
}

// PATTERN=SCHEME, split at the last '='; "keep" is a scheme here.
Check scheme_assignment() {
  const auto check = [](std::string& value) -> std::string {
    const std::size_t equals = value.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return "'" + value + "' is not PATTERN=SCHEME ('*down_proj*=sym_int8')";
    std::string scheme = value.substr(equals + 1);
    return one_of(scheme_names_and_keep()).problem_with(scheme);
  };
  return {check};
}

void declare(OptionParser& parser, Words& words) {
  parser
      .add_checkpoint(
          "SRC", words.source,
          "model to read, a directory or a file; one that is quantised keeps its codes unless --scheme is said")
      .required();
  parser.add_option("DST", words.destination, "directory to write; it appears when it is complete").required();
  parser.add_option("--scheme", words.scheme, "how Linear weights are stored")
      .check(one_of(scheme_names()))
      .show_default();
  parser
      .add_option("--group-size", words.group_size,
                  "weights that share a scale; of hb4 32 and of hb4_fine 16 if not said")
      .check(one_of(group_size_names()))
      .show_default();
  parser
      .add_option("--search", words.search,
                  "how a scale is chosen: by least squared error and then made a little longer (docs/accuracy.md), by "
                  "that alone, or by "
                  "the largest weight")
      .check(one_of(search_names()))
      .show_default();
  parser.add_flag("--nested-scales", words.nested_scales,
                  "nf4, fp4: scales in 8 bits too (bitsandbytes's double quantisation)");
  declare_budget(parser, words.budget);
  declare_calibration(parser, words.calibration);
  parser.add_option("--keep", words.keep, "leave tensors as they are; '*' matches anything; repeatable")
      .type_name("PATTERN")
      .repeatable();
  parser
      .add_option("--scheme-for", words.scheme_for,
                  "another scheme (or 'keep') for some tensors; the last match wins; repeatable")
      .type_name("PATTERN=SCHEME")
      .check(scheme_assignment())
      .repeatable();
  parser.add_option("--head", words.head, "how the output head is stored, which stays as it is if not said")
      .check(one_of(scheme_names_and_keep()));
  parser
      .add_option("--embedding", words.embedding,
                  "how the embedding is stored, which stays as it is if not said; halfbyte alone reads a packed one "
                  "(--halfbyte-only)")
      .check(one_of(scheme_names_and_keep()));
  parser
      .add_option("--assume-original", words.assume_original,
                  "dtype to record where SRC does not say what a tensor was")
      .check(one_of({"float32", "float16", "bfloat16"}));
  parser.add_flag("--halfbyte-only", words.halfbyte_only,
                  "allow what no other program reads: " + own_schemes() +
                      ", a packed embedding, or schemes of two families in one checkpoint");
  parser.add_flag(
      "--keep-packed", words.keep_packed,
      "what of SRC is packed keeps its codes, and the rest is quantised (gpt-oss, whose experts are MXFP4)");
  parser.add_option("--threads", words.threads, "0: one a core").check(whole_number(0, 4096)).show_default();
  parser.add_option("--memory-limit", words.memory_limit, "what the program takes at most, about")
      .type_name("SIZE")
      .check(byte_size())
      .show_default();
  parser
      .add_option("--shard-size", words.shard_size, "split the result into files of this many bytes (as SRC is split)")
      .type_name("SIZE")
      .check(byte_size());
  parser
      .add_option("--report", words.report,
                  "write report.html, a page about what became of each tensor, and its data as report.json")
      .type_name("DIR");
  parser
      .add_option(
          "--part", words.part,
          "do one of N shares of the work, on any machine that sees SRC and DST; the same command goes on where "
          "it was stopped, and the last one that is done completes DST. With --calibrate all run at the same time. "
          "A launcher (halfbyte launch, torchrun, mpirun, srun) says it by its variables")
      .type_name("I/N")
      .check(part_of_all());
  parser.add_flag("--finish", words.finish, "complete DST from what --part has written");
  parser.add_flag("--resume", words.resume, "go on where a killed or interrupted run stopped (DST.partial)");
  parser.add_flag("--restart", words.restart,
                  "begin anew where --resume could go on: what DST.partial holds is deleted");
  parser.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
  parser.add_flag("--dry-run", words.dry_run, "print what would be done with each tensor, and write nothing");
}

quant::Search search_of(const std::string& word) {
  return std::ranges::find(quant::searches(), word, &quant::SearchName::name)->search;
}

// Nobody of ours sets them here.
const char* variable(const char* name) { return std::getenv(name); }  // NOLINT(concurrency-mt-unsafe)

// Whoever was started with others does its share, unless the words say what is to be done.
std::optional<convert::WorkPart> part_of(const Words& words) {
  if (!words.part.empty()) {
    const auto [index, count] = parse_part(words.part);
    if (count == 1) return std::nullopt;  // all of it
    return convert::WorkPart{index, count};
  }
  const auto launched = words.finish ? std::nullopt : launched_rank();
  if (!launched) return std::nullopt;
  if (!variable(kRanksMemory))
    log_warning("this is part " + std::to_string(launched->rank + 1) + " of " + std::to_string(launched->count) +
                ", as " + launched->said_by + " say (--part 1/1 does all of it)");
  return convert::WorkPart{launched->rank + 1, launched->count};
}

// Only what was said is set: without options that say how to quantise, a source that is quantised keeps its codes.
convert::QuantizeOptions options_of(const Words& words, const OptionParser& parser) {
  convert::QuantizeOptions options;
  options.keep_codes = true;
  if (parser.is_given("--scheme")) options.scheme = words.scheme;
  if (parser.is_given("--group-size"))
    options.group_size = words.group_size == "channel" ? kPerChannel : std::stoll(words.group_size);
  if (parser.is_given("--search")) options.search = search_of(words.search);
  options.keep = words.keep;
  for (const std::string& pair : words.scheme_for) {
    const std::size_t equals = pair.rfind('=');
    options.scheme_for.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  if (!words.head.empty()) options.head = words.head;
  if (!words.embedding.empty()) options.embedding = words.embedding;
  options.target_bpw = words.budget.bits;
  if (!words.budget.size.empty()) options.target_size = parse_bytes(words.budget.size);
  options.threads = words.threads;
  options.memory_limit = parse_bytes(words.memory_limit);
  if (!words.shard_size.empty()) options.shard_size = parse_bytes(words.shard_size);
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  options.nested_scales = words.nested_scales;
  options.halfbyte_only = words.halfbyte_only;
  options.keep_packed = words.keep_packed;
  options.part = part_of(words);
  options.part_timeout = ranks_timeout().value_or(options.part_timeout);
  options.finish = words.finish;
  options.resume = words.resume;
  options.restart = words.restart;
  options.overwrite = words.overwrite;
  options.spelling = command_line();
  return options;
}

// What the user may not expect of the result; on stderr.
void log_notes(const std::vector<Text>& notes) {
  for (const Text& note : notes) log_warning(said(note));
}

// "154 tensors to sym_int4, 1 tensor to sym_int8, 46 kept".
std::string counts_line(const convert::Plan& plan) {
  std::map<std::string, std::int64_t> by_scheme;
  std::int64_t kept = 0;
  for (const convert::PlannedTensor& tensor : plan.tensors) {
    if (tensor.scheme != nullptr) {
      ++by_scheme[std::string(tensor.scheme->name)];
    } else if (tensor.tied_to.empty() && tensor.part_of.empty()) {
      ++kept;
    }
  }
  std::string line;
  for (const auto& [scheme, count] : by_scheme) line += counted(count, "tensor") + " to " + scheme + ", ";
  return line + std::to_string(kept) + " kept";
}

// Of one part, which leaves DST to others.
std::string part_line(const Words& words, const convert::WorkPart& part, const convert::QuantizeSummary& summary) {
  const std::string rest = summary.parts_left.empty() ? "another part completes " + printable(words.destination)
                                                      : printable(words.destination) + " waits for " +
                                                            convert::parts_text(summary.parts_left, part.count);
  return convert::parts_text({part.index}, part.count) + ": " + human_bytes(summary.source_bytes) + " -> " +
         human_bytes(summary.result_bytes) + " in " + human_seconds(summary.seconds) + " (" +
         counted(summary.quantized_tensors, "tensor") + " quantised, " + std::to_string(summary.kept_tensors) +
         " kept; relative error " + fixed(summary.rel_rmse, 3) + "); " + rest;
}

std::string line_of(const Words& words, const convert::Plan& plan, const convert::QuantizeOptions& options,
                    const convert::QuantizeSummary& summary) {
  if (summary.was_complete) return printable(words.destination) + " is complete already; nothing was done";
  if (!summary.is_whole) return part_line(words, *options.part, summary);
  std::string line = human_bytes(summary.source_bytes) + " -> " + human_bytes(summary.result_bytes) + " in " +
                     human_seconds(summary.seconds) + " (" + counts_line(plan) + "; relative error " +
                     fixed(summary.rel_rmse, 3);
  if (options.calibrator) line += "; " + calibration_words(calibration_json(options));
  // Of what calibration had done nothing is counted here.
  if (words.finish || options.part) return line + "; all parts are done)";
  if (words.resume && (!options.calibrator || summary.resumed_bytes > 0))
    line += "; " + human_bytes(summary.resumed_bytes) + " were done before";
  return line + ")";
}

std::string repacked_line(const convert::QuantizeSummary& summary, const std::string& kind) {
  return human_bytes(summary.source_bytes) + " -> " + human_bytes(summary.result_bytes) + " in " +
         human_seconds(summary.seconds) + " (" + counted(summary.quantized_tensors, "tensor") + " of " + kind +
         " with the same codes and scales, " + std::to_string(summary.kept_tensors) + " kept)";
}

// The rest of a line or of JSON about what was done, by kind of conversion.
void print_done(const Words& words, const convert::Conversion& conversion, const convert::QuantizeSummary& summary,
                bool is_json) {
  const auto* quantization = std::get_if<convert::Quantization>(&conversion.work);
  if (is_json) return print_json(conversion_json(words.source, words.destination, conversion, summary));
  print_line(quantization ? line_of(words, quantization->plan, conversion.options, summary)
                          : repacked_line(summary, conversion.source->kind));
  if (conversion.options.mix) print_line(mix_line(*conversion.options.mix));
}

ExitStatus show(const convert::Conversion& conversion, bool is_json) {
  const auto* quantization = std::get_if<convert::Quantization>(&conversion.work);
  if (!quantization) throw UsageError(flag(Option::kDryRun) + ": " + said(convert::keeps_codes_text()));
  log_notes(quantization->plan.notes);
  print_plan(conversion, *quantization, calibration_json(conversion.options), is_json);
  return ExitStatus::kDone;
}

// Whether calibration would give a better result of this: a model that can be run, of weights in 4 bits. Asked when a
// conversion is done: that it cannot be said is no failure of it.
bool could_be_calibrated(const convert::Conversion& conversion) noexcept try {
  const auto* quantization = std::get_if<convert::Quantization>(&conversion.work);
  const auto is_low = [](const convert::PlannedTensor& tensor) { return tensor.scheme && tensor.scheme->bits == 4; };
  return quantization && !conversion.options.calibrator && conversion.source->architecture && runs_models() &&
         std::ranges::any_of(quantization->plan.tensors, is_low);
} catch (const std::exception&) {
  return false;
}

convert::QuantizeSummary run_with_progress(convert::Conversion& conversion, const Words& words, bool is_shown) {
  const bool is_repacking = std::holds_alternative<convert::Repacking>(conversion.work);
  Progress progress(is_repacking ? "repack" : "quantize", is_shown);
  conversion.options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  return convert::run(conversion, words.destination);
}

ExitStatus run(const Words& words, convert::QuantizeOptions options, const CommonOptions& common,
               const ModelWork* work) {
  const bool is_calibrated = !words.calibration.text.empty(), has_target = words.budget.is_there();
  if ((is_calibrated || has_target) && !work) return common.run_with_model();
  ignore_broken_pipes();
  const InterruptWatch interrupt;  // before OpenMP's threads
  options.stop = interrupt.token();
  Progress calibrating("calibrate", is_calibrated && !common.is_quiet, ProgressUnit::kTokens);
  if (is_calibrated) {
    options.calibrator =
        work->calibrator(words.calibration, words.source, words.threads,
                         [&](std::uint64_t done, std::uint64_t total) { calibrating.update(done, total); });
  }
  Progress measuring("measure", has_target && !common.is_quiet, ProgressUnit::kTokens);
  if (has_target) {
    options.sensitivity =
        work->sensitivity(words.calibration, words.source, words.threads,
                          [&](std::uint64_t done, std::uint64_t total) { measuring.update(done, total); });
  }
  convert::Conversion conversion = convert::prepare(words.source, options);
  if (!conversion.warning.empty()) log_warning(said(conversion.warning));
  if (words.dry_run) return show(conversion, common.is_json);
  if (!words.report.empty()) check_report_folder(words.report);
  const convert::QuantizeSummary summary = run_with_progress(conversion, words, !common.is_quiet);
  log_notes(summary.notes);
  log_always(said(summary.warnings));
  if (!words.report.empty() && summary.is_whole)
    report_conversion(words.report, conversion, words.source, words.destination);
  print_done(words, conversion, summary, common.is_json);
  if (!words.report.empty() && summary.is_whole && !common.is_json)
    print_line("report: " + printable(words.report) + "/report.html");
  if (common.is_json || common.is_quiet || summary.was_complete || !summary.is_whole) return ExitStatus::kDone;
  if (!summary.advice.empty()) print_line(said(summary.advice));
  if (could_be_calibrated(conversion))
    print_line("by the weights alone: --calibrate builtin, or a text of yours, loses about half as much");
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_quantize_with(OptionParser& parser, const CommonOptions& common, const ModelWork* work) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, work, &common, &parser] {
    if (parser.is_given("--memory-limit")) words->calibration.memory_limit = parse_bytes(words->memory_limit);
    return run(*words, options_of(*words, parser), common, work);
  };
}

}  // namespace halfbyte::cli
