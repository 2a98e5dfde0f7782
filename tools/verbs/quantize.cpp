// halfbyte quantize SRC DST
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>
#include <halfbyte/scheme.h>

#include "convert/export/dequantized_view.h"
#include "convert/plan.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/verbs/plan_output.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

struct Words {
  std::string source;
  std::string destination;
  std::string scheme = "sym_int4";
  std::string group_size = "64";
  std::string search = "search";
  std::vector<std::string> keep;
  std::vector<std::string> scheme_for;
  int threads = 0;
  std::string memory_limit = "512MiB";
  std::string shard_size;
  std::string assume_original;
  bool nested_scales = false;
  bool halfbyte_only = false;
  bool overwrite = false;
  bool resume = false;
  bool dry_run = false;
  bool chooses_codes = false;  // an option says how to quantise
};

// Options that say how to quantise: without them a source that is quantised keeps its codes.
constexpr const char* kQuantizingOptions[] = {"--scheme",        "--group-size", "--search",
                                              "--nested-scales", "--scheme-for", "--keep"};

struct SearchName {
  const char* name;
  quant::Search search;
};
constexpr SearchName kSearches[] = {{"search", quant::Search::kSquaredError}, {"absmax", quant::Search::kAbsmax}};

// Those that no other program reads.
std::string own_schemes() {
  std::string out;
  for (const Scheme& scheme : schemes()) {
    if (!scheme.has_foreign_readers) out += (out.empty() ? "" : ", ") + std::string(scheme.name);
  }
  return out;
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const Scheme& scheme : schemes()) names.emplace_back(scheme.name);
  return names;
}

std::vector<std::string> group_size_names() {
  std::vector<std::string> names;
  for (const std::int64_t size : kGroupSizes) names.push_back(std::to_string(size));
  names.emplace_back("channel");
  return names;
}

std::vector<std::string> search_names() {
  std::vector<std::string> names;
  for (const SearchName& row : kSearches) names.emplace_back(row.name);
  return names;
}

// PATTERN=SCHEME, split at the last '='; "keep" is a scheme here.
CLI::Validator scheme_assignment() {
  const auto check = [](std::string& value) -> std::string {
    const std::size_t equals = value.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return "'" + value + "' is not PATTERN=SCHEME ('*down_proj*=sym_int8')";
    std::vector<std::string> names = scheme_names();
    names.emplace_back("keep");
    std::string scheme = value.substr(equals + 1);
    return one_of(names)(scheme);
  };
  return CLI::Validator(check, "");
}

void declare(CLI::App& app, Words& words) {
  app.add_option("SRC", words.source,
                 "model to read, a directory or a file; one that is quantised keeps its codes unless --scheme is said")
      ->required();
  app.add_option("DST", words.destination, "directory to write; it appears when it is complete")->required();
  app.add_option("--scheme", words.scheme, "how Linear weights are stored")
      ->check(one_of(scheme_names()))
      ->capture_default_str();
  app.add_option("--group-size", words.group_size, "weights that share a scale")
      ->check(one_of(group_size_names()))
      ->capture_default_str();
  app.add_option("--search", words.search, "how a scale is chosen: least squared error, or the largest weight alone")
      ->check(one_of(search_names()))
      ->capture_default_str();
  app.add_flag("--nested-scales", words.nested_scales,
               "nf4, fp4: scales in 8 bits too (bitsandbytes's double quantisation)");
  app.add_option("--keep", words.keep, "leave tensors as they are; '*' matches anything; repeatable")
      ->type_name("PATTERN")
      ->expected(1)
      ->take_all();
  app.add_option("--scheme-for", words.scheme_for,
                 "another scheme (or 'keep') for some tensors; the last match wins; repeatable")
      ->type_name("PATTERN=SCHEME")
      ->check(scheme_assignment())
      ->expected(1)
      ->take_all();
  app.add_option("--assume-original", words.assume_original, "dtype to record where SRC does not say what a tensor was")
      ->check(one_of({"float32", "float16", "bfloat16"}));
  app.add_flag(
      "--halfbyte-only", words.halfbyte_only,
      "allow what no other program reads: " + own_schemes() + ", or schemes of two families in one checkpoint");
  app.add_option("--threads", words.threads, "0: one a core")->check(whole_number(0, 4096))->capture_default_str();
  app.add_option("--memory-limit", words.memory_limit, "what the program takes at most, about")
      ->type_name("SIZE")
      ->check(byte_size())
      ->capture_default_str();
  app.add_option("--shard-size", words.shard_size, "split the result into files of this many bytes (as SRC is split)")
      ->type_name("SIZE")
      ->check(byte_size());
  app.add_flag("--resume", words.resume, "go on where a killed or interrupted run stopped (DST.partial)");
  app.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
  app.add_flag("--dry-run", words.dry_run, "print what would be done with each tensor, and write nothing");
}

convert::QuantizeOptions options_of(const Words& words) {
  convert::QuantizeOptions options;
  options.scheme = words.scheme;
  options.group_size = words.group_size == "channel" ? kPerChannel : std::stoll(words.group_size);
  for (const SearchName& row : kSearches) {
    if (words.search == row.name) options.search = row.search;
  }
  options.keep = words.keep;
  for (const std::string& pair : words.scheme_for) {
    const std::size_t equals = pair.rfind('=');
    options.scheme_for.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  options.threads = words.threads;
  options.memory_limit = parse_bytes(words.memory_limit);
  if (!words.shard_size.empty()) options.shard_size = parse_bytes(words.shard_size);
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  options.nested_scales = words.nested_scales;
  options.halfbyte_only = words.halfbyte_only;
  options.requantize = words.chooses_codes;
  options.resume = words.resume;
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
    } else if (tensor.tied_to.empty()) {
      ++kept;
    }
  }
  std::string line;
  for (const auto& [scheme, count] : by_scheme) line += counted(count, "tensor") + " to " + scheme + ", ";
  return line + std::to_string(kept) + " kept";
}

ordered_json json_of(const Words& words, const convert::QuantizeSummary& summary) {
  return {{"source", words.source},
          {"destination", words.destination},
          {"source_bytes", summary.source_bytes},
          {"result_bytes", summary.result_bytes},
          {"quantized_tensors", summary.quantized_tensors},
          {"kept_tensors", summary.kept_tensors},
          {"resumed_bytes", summary.resumed_bytes},
          {"was_complete", summary.was_complete},
          {"rel_rmse", summary.was_complete ? ordered_json(nullptr) : ordered_json(summary.rel_rmse)},
          {"seconds", summary.seconds},
          {"notes", said(summary.notes)}};
}

std::string line_of(const Words& words, const convert::Plan& plan, const convert::QuantizeSummary& summary) {
  if (summary.was_complete) return printable(words.destination) + " is complete already; nothing was done";
  std::string line = human_bytes(summary.source_bytes) + " -> " + human_bytes(summary.result_bytes) + " in " +
                     human_seconds(summary.seconds) + " (" + counts_line(plan) + "; relative error " +
                     fixed(summary.rel_rmse, 3);
  if (words.resume) line += "; " + human_bytes(summary.resumed_bytes) + " were done before";
  return line + ")";
}

std::string repacked_line(const convert::QuantizeSummary& summary, const std::string& kind) {
  return human_bytes(summary.source_bytes) + " -> " + human_bytes(summary.result_bytes) + " in " +
         human_seconds(summary.seconds) + " (" + counted(summary.quantized_tensors, "tensor") + " of " + kind +
         " with the same codes and scales, " + std::to_string(summary.kept_tensors) + " kept)";
}

// The source is quantised, and nothing was said of another scheme.
ExitStatus repack(const Words& words, const CommonOptions& common, const files::Checkpoint& source,
                  const InterruptWatch& interrupt) {
  if (words.dry_run || words.resume)
    throw UsageError(std::string(words.dry_run ? "--dry-run" : "--resume") +
                     ": the source is quantised already and keeps its codes; say --scheme to quantise it again");
  convert::RepackOptions options;
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  options.threads = words.threads;
  if (!words.shard_size.empty()) options.shard_size = parse_bytes(words.shard_size);
  options.overwrite = words.overwrite;
  options.stop = interrupt.token();
  convert::QuantizeSummary summary;
  {
    Progress progress("repack", !common.is_quiet);
    options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
    summary = convert::repack(words.source, words.destination, options);
  }
  log_notes(summary.notes);
  ordered_json json = json_of(words, summary);
  json["rel_rmse"] = nullptr;  // of the original, which is not here
  common.is_json ? print_json(json) : print_line(repacked_line(summary, source.kind));
  return ExitStatus::kDone;
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  const InterruptWatch interrupt;  // before OpenMP's threads
  convert::QuantizeOptions options = options_of(words);
  files::Checkpoint source = files::open_checkpoint(words.source);
  if (source.is_quantized()) {
    if (!words.chooses_codes) return repack(words, common, source, interrupt);
    log_warning("the source is quantised already (" + source.kind +
                "): its errors stay, and those of another rounding are added; the original would be better");
    if (options.assume_original) files::assume_original(source, *options.assume_original);
    source = convert::dequantized_view(std::move(source));
  }
  const convert::Plan plan = convert::plan(source, options);
  if (words.dry_run) {
    log_notes(plan.notes);
    print_plan(source, plan, common.is_json);
    return ExitStatus::kDone;
  }
  options.stop = interrupt.token();
  convert::QuantizeSummary summary;
  {
    Progress progress("quantize", !common.is_quiet);
    options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
    summary = convert::quantize(words.source, words.destination, options);
  }
  log_notes(summary.notes);
  if (common.is_json) {
    print_json(json_of(words, summary));
  } else {
    print_line(line_of(words, plan, summary));
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_quantize(CLI::App& app, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(app, *words);
  return [words, &common, &app] {
    words->chooses_codes =
        std::ranges::any_of(kQuantizingOptions, [&](const char* name) { return app.count(name) > 0; });
    return run(*words, common);
  };
}

}  // namespace halfbyte::cli
