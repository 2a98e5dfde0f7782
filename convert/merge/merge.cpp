// Adapters -> a view of the checkpoint that has them -> a conversion like any other.
#include <halfbyte/merge.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include "convert/conversion.h"
#include "convert/export/dequantized_view.h"
#include "convert/file_notes.h"
#include "convert/group_sizes.h"
#include "convert/merge/merge_record.h"
#include "convert/merge/merged_view.h"
#include "convert/open_source.h"
#include "convert/output/destination.h"
#include "convert/translated_errors.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::Checkpoint;
using files::TensorRecord;
using nlohmann::json;

std::string last_name(const fs::path& path) { return destination_path(path).filename().string(); }

std::vector<OpenAdapter> open_all(std::span<const WeightedAdapter> adapters) {
  if (adapters.empty()) throw Error(ErrorCode::kInvalidArgument, "merge: there is no adapter to merge");
  std::vector<OpenAdapter> out;
  for (const auto& [directory, weight] : adapters) {
    if (!std::isfinite(weight))
      throw Error(ErrorCode::kInvalidArgument, files::printable_path(directory) + ": a weight that is not finite");
    out.push_back({std::make_shared<const PeftAdapter>(open_peft_adapter(directory)), weight});
  }
  return out;
}

json record_of(const fs::path& path, const Checkpoint& base, std::span<const OpenAdapter> adapters,
               const MergeOptions& options) {
  json list = json::array();
  for (const auto& [adapter, weight] : adapters) {
    list.push_back({{"name", last_name(adapter->directory)},
                    {"kind", adapter->config.is_weight_decomposed ? "dora" : "lora"},
                    {"weight", weight},
                    {"xxh3_128", adapter->hash()}});
  }
  return {{"base", base_record(path, base)}, {"adapters", std::move(list)}, {"dequantize", options.dequantize}};
}

std::optional<quant::Search> search_of(const Checkpoint& base) {
  const json& conversion = *base.manifest.conversion;
  if (!conversion.is_object() || !conversion.contains("search")) return std::nullopt;
  const auto found = std::ranges::find_if(
      quant::searches(), [&](const quant::SearchName& row) { return conversion["search"] == row.name; });
  if (found == quant::searches().end()) return std::nullopt;
  return found->search;
}

// How each merged tensor was packed is how it is packed again.
std::map<std::string, TensorChoice> choices_of(const Checkpoint& base, const MergedView& view) {
  std::map<std::string, TensorChoice> out;
  for (const auto& [name, merged] : view.merged) {
    const TensorRecord& record = *base.manifest.find(name);
    if (!record.scheme) continue;
    const bool is_one_scale = record.group_size == record.shape.back() &&
                              std::ranges::count(group_sizes(*record.scheme), record.group_size) == 0;
    out[name] = {std::string(record.scheme->name), is_one_scale ? kPerChannel : record.group_size,
                 record.nested_offset.has_value()};
  }
  return out;
}

// What the user should know of the codes and dtypes of the result.
std::vector<Text> notes_of(const Checkpoint& base, const MergedView& view, const MergeOptions& options) {
  std::vector<Text> out;
  const auto is_packed = [](const TensorRecord* record) { return record->scheme != nullptr; };
  std::int64_t packed = 0, unknown = 0;
  for (const TensorRecord& record : base.manifest.tensors) {
    packed += is_packed(&record) && view.merged.contains(record.name) ? 1 : 0;
    unknown += is_packed(&record) && !record.original_dtype ? 1 : 0;
  }
  const json& conversion = *base.manifest.conversion;
  if (packed > 0 && !options.dequantize && conversion.is_object() && conversion.contains("calibration"))
    out.push_back(
        "the source's codes were chosen by calibration, those of merged tensors are by their weights alone; " +
        Option::kDequantize + " writes a plain checkpoint, which can be calibrated again");
  if (unknown > 0 && options.dequantize)
    out.push_back("the original dtype of " + std::to_string(unknown) +
                  " tensors is not on record: written as float32; " + Option::kAssumeOriginal + " chooses another");
  return out;
}

QuantizeOptions options_of(const MergeOptions& options) {
  return {.threads = options.threads,
          .memory_limit = options.memory_limit,
          .shard_size = options.shard_size,
          .overwrite = options.overwrite,
          .spelling = options.spelling,
          .resume = options.resume,
          .restart = options.restart,
          .progress = options.progress,
          .stop = options.stop};
}

MergeSummary merged(const fs::path& path, std::span<const WeightedAdapter> adapters, const fs::path& destination,
                    const MergeOptions& options) {
  const fs::path target = destination_path(destination);
  check_apart(path, target);
  for (const WeightedAdapter& adapter : adapters) check_apart(adapter.directory, target);
  const Checkpoint base = open_source(path, options.assume_original);
  const std::vector<OpenAdapter> opened = open_all(adapters);
  const std::uint64_t source_bytes = base.size_bytes;
  MergedView view = merged_view(base, opened);
  QuantizeOptions how = options_of(options);
  how.halfbyte_only = true;  // where the source is so
  how.only_choices = true;
  how.search = search_of(base);
  how.merge = std::make_shared<const Merge>(
      Merge{.record = models::HeldJson(record_of(path, base, opened, options)), .tensors = view.merged});
  if (options.dequantize) {
    view.checkpoint = dequantized_view(std::move(view.checkpoint), Casts::kToRecorded);
  } else {
    how.choices = choices_of(base, view);
    how.keep_packed = view.checkpoint.is_quantized();
    std::erase_if(view.checkpoint.side_files, is_quantization_file);
  }
  MergeSummary out{.merged_tensors = static_cast<std::int64_t>(view.merged.size())};
  const Conversion conversion = prepare(std::move(view.checkpoint), how);
  out.result = run(conversion, target);
  out.result.source_bytes = source_bytes;  // not of the view, in which some are dense
  std::ranges::copy(notes_of(base, view, options), std::back_inserter(out.result.notes));
  if (out.result.was_complete) return out;
  const MergeErrors errors = how.merge->total();
  out.change = errors.change.rel_rmse();
  out.rounding = errors.rounding.rel_rmse();
  return out;
}

}  // namespace

MergeSummary merge(const fs::path& source, std::span<const WeightedAdapter> adapters, const fs::path& destination,
                   const MergeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  MergeSummary out =
      with_translated_errors("merging", source, [&] { return merged(source, adapters, destination, options); });
  out.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace halfbyte::convert
