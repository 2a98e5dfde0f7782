#include "convert/export/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/export/image.h"
#include "convert/export/plan.h"
#include "convert/file_notes.h"
#include "convert/open_source.h"
#include "convert/output/small_files.h"
#include "convert/quantization_config.h"
#include "convert/translated_errors.h"
#include "loader/files/directory.h"
#include "loader/files/printable.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::convert {
namespace {

using files::printable_path;

void check_source(const files::Checkpoint& source, const fs::path& path, const ExportFormat& format) {
  if (!source.is_quantized()) {
    const std::string scheme(halfbyte::scheme(format.schemes.front()).name);
    const OperationCall to_quantise{Operation::kQuantize, {printable_path(path), "Q"}, {{Option::kScheme, scheme}}};
    const OperationCall to_export{Operation::kExport, {"Q", "DST"}, {{Option::kFormat, std::string(format.name)}}};
    throw Error(ErrorCode::kUnsupported, printable_path(path) + ": nothing in it is quantised; first `" + to_quantise +
                                             "`, then `" + to_export + "`");
  }
  if (!source.has_config())
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
  const std::optional<Dtype> declared = models::declared_dtype(nlohmann::json(*source.config));
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

void write_small_files(const files::Checkpoint& source, const ExportPlan& plan, const Image& image,
                       const Destination& destination) {
  SmallFiles out(source, destination);
  out.write_index(image.files);
  const nlohmann::ordered_json quantization = plan.format->config(source, plan);
  nlohmann::ordered_json config = *source.config;
  ask_for_float16(plan, config);
  for (const char* key : {"quantization_config", "compression_config"}) config.erase(key);
  config["quantization_config"] = quantization;  // last, wherever the source has it
  out.write(files::kConfigFile, config.dump(2) + "\n");
  if (!plan.format->config_file.empty()) out.write(fs::path(plan.format->config_file), quantization.dump(2) + "\n");
  for (const fs::path& name : source.side_files) {
    if (!is_quantization_file(name)) out.copy(name);
  }
  out.write_generated();
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

ExportSummary summary_of(const files::Checkpoint& source, const ExportPlan& plan, const Image& image,
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
                        " (relative RMSE); `" + Operation::kDiff + "` says it of each tensor");
  if (out.rounded_tensors > 0)
    out.notes.push_back("rounding changed a scale by " + in_percent(plan.scale_change) + " at most");
  return out;
}

ExportSummary write_exported(const fs::path& source_path, const fs::path& target, const ExportOptions& options) {
  const ExportFormat& format = export_format(options.format);
  files::Checkpoint source = open_source(source_path, options.assume_original);
  files::turn_as_stored(source);
  check_source(source, source_path, format);
  check_apart(source_path, target);
  ExportPlan plan = plan_export(source, format, options);
  add_dtype_note(source, plan);
  if (format.add_notes) format.add_notes(plan);
  ExportErrors errors;
  const Image image = lay_out_export(source, plan, options.threads, errors);
  Destination destination(target, {.overwrite = options.overwrite});
  destination.check_space(image.file_bytes() + small_file_bytes(source));
  destination.fill([&] {
    write_image(image, destination.partial_path(),
                {.threads = options.threads, .progress = options.progress, .stop = options.stop});
    write_small_files(source, plan, image, destination);
  });
  ExportSummary out = summary_of(source, plan, image, errors.stats());
  out.warnings = destination.warnings();
  return out;
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
