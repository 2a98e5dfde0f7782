#include <algorithm>
#include <chrono>
#include <optional>

#include <halfbyte/convert.h>

#include "convert/convert_tensors.h"
#include "convert/export/dequantized_view.h"
#include "convert/memory.h"
#include "convert/output/destination.h"
#include "convert/output/journal.h"
#include "convert/output/small_files.h"
#include "convert/provenance.h"
#include "convert/quantization_config.h"
#include "convert/result_manifest.h"
#include "convert/tied_duplicates.h"
#include "convert/translated_errors.h"
#include "loader/files/directory.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

void write_config(const files::Checkpoint& source, const Plan& plan, SmallFiles& out) {
  if (source.config.is_null()) return;
  nlohmann::ordered_json quantization = quantization_config(source, plan);
  if (quantization.is_null() && source.has_config_file) return out.copy(files::kConfigFile);
  nlohmann::ordered_json config = source.config;
  if (!quantization.is_null()) config["quantization_config"] = std::move(quantization);
  out.write(files::kConfigFile, config.dump(2) + "\n");
}

void write_small_files(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                       const ConversionResult& result, const QuantizeOptions& options, const Destination& destination) {
  files::Manifest manifest = result_manifest(source, plan, result, options.spelling);
  manifest.conversion = conversion_record(options);
  manifest.files = data_file_records(layout);
  SmallFiles out(source, destination);
  out.write_index(layout.files);
  write_config(source, plan, out);
  for (const fs::path& name : source.side_files) out.copy(name);
  out.write_generated();
  manifest.files.insert(manifest.files.end(), out.records().begin(), out.records().end());
  destination.write_file(files::kManifestFile, files::manifest_to_json(manifest));
}

QuantizeSummary summary_of(const files::Checkpoint& source, const Plan& plan, const ConversionResult& result) {
  QuantizeSummary out;
  out.source_bytes = source.size_bytes;
  out.result_bytes = plan.bytes_after;
  out.resumed_bytes = result.resumed_bytes;
  out.notes = plan.notes;
  quant::ErrorStats total;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    ++(plan.tensors[i].scheme ? out.quantized_tensors : out.kept_tensors);
    if (i < result.tensors.size() && result.tensors[i].error) total.add(*result.tensors[i].error);
  }
  out.rel_rmse = total.rel_rmse();
  return out;
}

// Everything that is known before a byte is written.
struct Preparation {
  files::Checkpoint source;
  Plan plan;
  ResultLayout layout;
  MemoryPlan memory;
};

files::Checkpoint source_of(const fs::path& path, const QuantizeOptions& options) {
  files::Checkpoint out = files::open_checkpoint(path);
  if (options.assume_original) files::assume_original(out, *options.assume_original);
  return options.requantize && out.is_quantized() ? dequantized_view(std::move(out)) : std::move(out);
}

Preparation prepare(const fs::path& source_path, const fs::path& destination, const QuantizeOptions& options) {
  if (options.threads < 0)
    throw Error(ErrorCode::kInvalidArgument, "threads: " + std::to_string(options.threads) + " is negative");
  Preparation out{source_of(source_path, options), {}, {}, {}};
  check_apart(source_path, destination);
  out.plan = plan(out.source, options);
  out.layout = lay_out(out.source, out.plan, options.shard_size);
  out.memory = plan_memory(out.source, out.plan, options);
  check_tied_duplicates(out.source, out.plan);
  return out;
}

// Whether an earlier run finished all and was killed then, or was never disturbed. Errors: kAlreadyExists when
// something else is there that may not be replaced.
bool is_complete(const Preparation& prepared, const fs::path& destination, const QuantizeOptions& options) {
  if (!fs::is_directory(fs::symlink_status(destination))) return false;
  const auto found = difference_from_complete(destination, prepared.source, prepared.layout, options);
  if (!found || options.overwrite) return !found;
  throw Error(ErrorCode::kAlreadyExists, files::printable_path(destination) +
                                             ": exists already and is not what this run would write (" + *found +
                                             "); " + Option::kOverwrite + " replaces it");
}

// What is left when a run was killed after the rename; the beginning of another conversion stays.
void clear_away(const fs::path& destination, const Preparation& prepared, const QuantizeOptions& options) {
  const auto journal = read_journal(work_path(destination));
  if (!journal || journal->identity == identity_of(prepared.source, prepared.layout, options))
    remove_leftovers(destination);
}

// Errors: kInvalidArgument when NAME.partial is the work of another conversion.
std::optional<JournalContents> find_unfinished(Destination& destination, const ResultLayout& layout,
                                               const nlohmann::json& identity) {
  auto journal = read_journal(destination.work_path());
  if (!journal) {
    destination.start_over();
    return std::nullopt;
  }
  if (const auto found = difference(journal->identity, identity)) {
    throw Error(ErrorCode::kInvalidArgument,
                files::printable_path(destination.work_path()) + " is the beginning of another conversion (" + *found +
                    "); give the same source and options, or leave out " + Option::kResume + " to start over");
  }
  std::vector<fs::path> wanted;
  for (const DataFileLayout& file : layout.files) wanted.emplace_back(file.name);
  destination.remove_all_but(wanted);
  return journal;
}

ConversionResult convert_into(Destination& destination, const Preparation& prepared, const QuantizeOptions& options) {
  const nlohmann::json identity = identity_of(prepared.source, prepared.layout, options);
  const auto unfinished = options.resume ? find_unfinished(destination, prepared.layout, identity) : std::nullopt;
  ConversionResult result;
  destination.fill([&] {
    destination.check_space(prepared.layout.size_bytes + small_file_bytes(prepared.source));
    Journal journal =
        unfinished ? Journal(destination.work_path(), *unfinished) : Journal(destination.work_path(), identity);
    if (options.resume) destination.keep();
    const Workplace workplace{destination.partial_path(), journal,
                              unfinished ? unfinished->finished : std::map<std::size_t, FinishedTensor>()};
    result = convert_tensors(prepared.source, prepared.plan, prepared.layout, prepared.memory, options, workplace);
    write_small_files(prepared.source, prepared.plan, prepared.layout, result, options, destination);
  });
  return result;
}

QuantizeSummary quantize_or_find(const fs::path& source_path, const fs::path& path, const QuantizeOptions& options) {
  const Preparation prepared = prepare(source_path, path, options);
  if (options.resume && is_complete(prepared, path, options)) {
    clear_away(path, prepared, options);
    QuantizeSummary summary = summary_of(prepared.source, prepared.plan, {});
    summary.was_complete = true;
    return summary;
  }
  Destination destination(path, {.overwrite = options.overwrite, .keep_leftovers = options.resume});
  const ConversionResult result = convert_into(destination, prepared, options);
  QuantizeSummary summary = summary_of(prepared.source, prepared.plan, result);
  if (destination.had_leftovers() && !options.resume) {
    summary.notes.push_back(files::printable_path(destination.work_path()) +
                            " was there from an unfinished run and was started over; " + Option::kResume +
                            " would have gone on");
  }
  return summary;
}

}  // namespace

QuantizeSummary quantize(const fs::path& source_path, const fs::path& path, const QuantizeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  QuantizeSummary summary = with_translated_errors(
      "converting", source_path, [&] { return quantize_or_find(source_path, destination_path(path), options); });
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

}  // namespace halfbyte::convert
