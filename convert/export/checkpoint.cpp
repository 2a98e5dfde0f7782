#include "convert/export/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include <halfbyte/error.h>

#include "convert/export/plan.h"
#include "convert/export/writer.h"
#include "convert/file_notes.h"
#include "convert/output/destination.h"
#include "convert/quantization_config.h"
#include "convert/translated_errors.h"
#include "loader/files/directory.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::printable_path;

// For config.json and the index when the disk is asked for room. Units: bytes.
constexpr std::uint64_t kRoomForSmallFiles = 4'000'000;

void check_source(const files::Checkpoint& source, const fs::path& path, const ExportFormat& format) {
  if (!source.is_quantized()) {
    const std::string scheme(halfbyte::scheme(format.schemes.front()).name);
    throw Error(ErrorCode::kUnsupported, printable_path(path) +
                                             ": nothing in it is quantised; first `halfbyte quantize " +
                                             printable_path(path) + " Q --scheme " + scheme +
                                             "`, then `halfbyte export Q DST --to " + std::string(format.name) + "`");
  }
  if (!source.config.is_object())
    throw Error(ErrorCode::kUnsupported, printable_path(path) + ": there is no config.json, and readers of " +
                                             std::string(format.title) + " need one; put it beside the weights");
}

// Scales are read in the dtype that the config asks for.
void ask_for_float16(const ExportPlan& plan, nlohmann::ordered_json& config) {
  if (!plan.format->has_float16_scales) return;
  const bool has_new_key = config.contains("dtype");
  if (has_new_key) config["dtype"] = "float16";
  if (!has_new_key || config.contains("torch_dtype")) config["torch_dtype"] = "float16";
}

void add_dtype_note(const files::Checkpoint& source, ExportPlan& plan) {
  const std::optional<Dtype> declared = models::declared_dtype(nlohmann::json(source.config));
  if (!declared) return;
  if (plan.format->has_float16_scales) {
    if (*declared != Dtype::kFloat16)
      plan.notes.push_back("config.json asks for float16 now, which the scales are in, instead of " +
                           std::string(name(*declared)));
    return;
  }
  const auto other = std::ranges::find_if(plan.tensors, [&](const ExportedTensor& tensor) {
    return tensor.result.scheme && tensor.result.scheme->layout == Layout::kPackQuantized &&
           tensor.result.scale_dtype != *declared && *declared != Dtype::kFloat32;
  });
  if (other == plan.tensors.end()) return;
  const std::string scales(name(other->result.scale_dtype));
  plan.notes.push_back("config.json asks for " + std::string(name(*declared)) + " and scales are " + scales +
                       ": transformers rounds them unless it is told dtype=" + scales);
}

void add_zero_point_note(ExportPlan& plan) {
  if (plan.format->name == "gptq" && plan.facts.is_gptq_v2)
    plan.notes.emplace_back(
        "some zero points are code 0, which version 1 of the format cannot say: written as gptq_v2, which GPTQModel, "
        "transformers with it, and newer vLLM read");
  if (plan.format->name == "gptq" && !plan.facts.is_gptq_v2 && !plan.facts.is_symmetric)
    plan.notes.emplace_back(
        "transformers and vLLM open GPTQ with zero points; GPTQModel by itself only its own; --to awq is for all");
  std::set<std::pair<const Scheme*, std::int64_t>> groups;
  bool has_zero_points = false;
  for (const ExportedTensor& tensor : plan.tensors) {
    if (!tensor.result.scheme) continue;
    groups.emplace(tensor.result.scheme, tensor.result.group_size);
    has_zero_points = has_zero_points || tensor.result.scheme->decode == Decode::kZeroPoint;
  }
  // transformers 5 dequantises every tensor as the first group of config.json says.
  if (plan.format->name == "compressed-tensors" && has_zero_points && groups.size() > 1)
    plan.notes.emplace_back(
        "transformers 5 opens asym_int4 only where all quantised tensors have one scheme and group size; here they "
        "differ");
}

void write_small_files(const files::Checkpoint& source, const ExportPlan& plan, const ExportImage& image,
                       const Destination& destination) {
  if (image.files.size() > 1) destination.write_file(files::kIndexFile, index_text(image.files));
  const nlohmann::ordered_json quantization = plan.format->config(source, plan);
  nlohmann::ordered_json config = source.config;
  ask_for_float16(plan, config);
  for (const char* key : {"quantization_config", "compression_config"}) config.erase(key);
  config["quantization_config"] = quantization;  // last, wherever the source has it
  destination.write_file(files::kConfigFile, config.dump(2) + "\n");
  if (!plan.format->config_file.empty())
    destination.write_file(fs::path(plan.format->config_file), quantization.dump(2) + "\n");
  for (const fs::path& name : source.side_files) {
    if (!is_quantization_file(name)) destination.copy_file(source.directory / name);
  }
  for (const auto& [name, text] : source.generated_files) destination.write_file(name, text());
}

std::uint64_t needed_bytes(const files::Checkpoint& source, const ExportImage& image) {
  std::uint64_t total = kRoomForSmallFiles;
  for (const DataFileLayout& file : image.files) total += file.size_bytes;
  for (const fs::path& name : source.side_files) total += fs::file_size(source.directory / name);
  return total;
}

std::int64_t& counter(ExportAction action, ExportSummary& out) {
  switch (action) {
    case ExportAction::kQuantize:
      return out.requantized_tensors;
    case ExportAction::kDequantize:
      return out.dequantized_tensors;
    case ExportAction::kRoundScales:
      return out.rounded_tensors;
    default:
      return out.exact_tensors;
  }
}

std::string in_percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g %%", fraction * 100);
  return text;
}

ExportSummary summary_of(const files::Checkpoint& source, const ExportPlan& plan, const ExportImage& image,
                         const quant::ErrorStats& stats) {
  ExportSummary out;
  out.source_bytes = source.size_bytes;
  out.result_bytes = image.size_bytes;
  out.notes = plan.notes;
  for (const ExportedTensor& tensor : plan.tensors) {
    if (tensor.source->scheme) ++counter(tensor.action, out);
  }
  out.rel_rmse = stats.rel_rmse();
  if (out.requantized_tensors > 0)
    out.notes.push_back("what was quantised again differs from what it was by " + in_percent(out.rel_rmse) +
                        " (relative RMSE); `halfbyte diff` says it of each tensor");
  if (out.rounded_tensors > 0)
    out.notes.push_back("rounding changed a scale by " + in_percent(plan.scale_change) + " at most");
  return out;
}

ExportSummary write_exported(const fs::path& source_path, const fs::path& target, const ExportOptions& options) {
  const ExportFormat& format = export_format(options.format);
  files::Checkpoint source = files::open_checkpoint(source_path);
  if (options.assume_original) files::assume_original(source, *options.assume_original);
  check_source(source, source_path, format);
  check_apart(source_path, target);
  check_apart(source_path, work_path(target));
  ExportPlan plan = plan_export(source, format, options);
  add_dtype_note(source, plan);
  add_zero_point_note(plan);
  const ExportImage image = lay_out_export(source, plan);
  Destination destination(target, {.overwrite = options.overwrite});
  destination.check_space(needed_bytes(source, image));
  const quant::ErrorStats stats = write_export(source, plan, image, destination.partial_path(), options);
  write_small_files(source, plan, image, destination);
  destination.commit();
  return summary_of(source, plan, image, stats);
}

}  // namespace

ExportSummary export_checkpoint(const fs::path& source_path, const fs::path& path, const ExportOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  if (options.threads < 0)
    throw Error(ErrorCode::kInvalidArgument, "threads: " + std::to_string(options.threads) + " is negative");
  ExportSummary summary = with_translated_errors(
      "exporting", source_path, [&] { return write_exported(source_path, destination_path(path), options); });
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

}  // namespace halfbyte::convert
