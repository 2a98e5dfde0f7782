#include "convert/gguf/export.h"

#include <algorithm>
#include <map>

#include <halfbyte/error.h>

#include "convert/gguf/limits.h"
#include "convert/gguf/plan.h"
#include "convert/gguf/rows.h"
#include "convert/open_source.h"
#include "convert/output/destination.h"
#include "convert/output/stored_parts.h"
#include "convert/translated_errors.h"
#include "loader/check_tensors.h"
#include "loader/files/printable.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::convert {
namespace {

// llama.cpp's general.file_type by the type that most matrices have.
std::int64_t file_type(const GgufPlan& plan) {
  std::map<std::string_view, int> counts;
  for (const GgufOutput& tensor : plan.tensors) counts[tensor.how->name] += tensor.shape.size() > 1 ? 1 : 0;
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return gguf_type(most->first).file_type;
}

std::string header(const GgufPlan& plan, const GgufMetadata& metadata) {
  std::string out = "GGUF";
  append_raw(out, std::uint32_t{3});
  append_raw(out, static_cast<std::uint64_t>(plan.tensors.size()));
  append_raw(out, metadata.count());
  out += metadata.bytes();
  for (const GgufOutput& tensor : plan.tensors) {
    append_text(out, tensor.name);
    append_raw(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t i = tensor.shape.size(); i > 0; --i)
      append_raw(out, static_cast<std::uint64_t>(tensor.shape[i - 1]));
    append_raw(out, tensor.type->number);
    append_raw(out, tensor.offset);
  }
  out.resize(gguf_padded(out.size()), '\0');
  return out;
}

std::shared_ptr<const ImageSource> values_of(const GgufOutput& tensor) {
  const auto bytes = std::as_bytes(std::span(tensor.values));
  return stored_parts({std::make_shared<files::ConstantBytes>(std::vector<std::byte>(bytes.begin(), bytes.end()))});
}

// One file without a name of its own.
Image image_of(const files::Checkpoint& source, const GgufPlan& plan, std::string head) {
  Image out;
  for (const GgufOutput& tensor : plan.tensors) {
    ImageRecord& record = out.records.emplace_back();
    record.source = tensor.sources.empty() ? values_of(tensor) : gguf_rows(source, tensor);
    record.places = {{0, head.size() + tensor.offset, tensor.size_bytes}};
    out.size_bytes += tensor.size_bytes;
  }
  const std::uint64_t size = head.size() + plan.data_bytes;
  out.files = {{.name = "", .tensors = {}, .header = std::move(head), .size_bytes = size}};
  return out;
}

// What llama.cpp computes otherwise, though it runs the model.
void add_notes(const models::ModelConfig& model, const files::GgufFamily& family, std::vector<std::string>& notes) {
  const std::string peer = "llama.cpp's " + std::string(family.architecture);
  const bool ignores_window =
      family.window == files::GgufWindow::kIgnored || family.window == files::GgufWindow::kRequired;
  if (model.sliding_window > 0 && ignores_window) {
    notes.push_back(peer + " knows no sliding window: beyond " + std::to_string(model.sliding_window) +
                    " tokens its results differ");
  }
  const models::RopeConfig& rope = model.ropes.front();
  if (rope.type == models::RopeType::kYarn && !rope.is_range_truncated)
    notes.push_back(peer +
                    " turns whole pairs by YaRN where the model turns shares of two: its results differ a little");
}

GgufExportSummary write_gguf(const fs::path& source_path, const fs::path& destination,
                             const GgufExportOptions& options) {
  files::Checkpoint source = open_source(source_path, std::nullopt);
  files::turn_to_rows(source);
  check_apart(source_path, destination);
  const files::GgufFamily* family =
      source.architecture ? files::gguf_family_of(source.architecture->model_type) : nullptr;
  if (!family)
    throw Error(ErrorCode::kUnsupported, files::printable_path(source_path) + ": its family has no name in GGUF here");
  models::ModelConfig model = source.model_config();
  check_tensors(source, model);
  check_gguf_limits(model, *family);
  Destination result(destination, {.overwrite = options.overwrite, .kind = Destination::Kind::kFile});
  GgufPlan plan = plan_gguf(source, model, *family, options);
  GgufMetadata metadata;
  add_model(model, *family, metadata);
  metadata.number("general.file_type", file_type(plan));
  add_notes(model, *family, plan.summary.notes);
  add_tokenizer(source, model.vocab_size, metadata, plan.summary.notes);
  const Image image = image_of(source, plan, header(plan, metadata));
  result.check_space(image.file_bytes());
  result.fill([&] { write_image(image, result.partial_path(), {.progress = options.progress, .stop = options.stop}); });
  plan.summary.source_bytes = source.size_bytes;
  plan.summary.result_bytes = image.file_bytes();
  plan.summary.warnings = result.warnings();
  return plan.summary;
}

}  // namespace

GgufExportSummary export_gguf(const fs::path& source_path, const fs::path& destination,
                              const GgufExportOptions& options) {
  return with_translated_errors("exporting", source_path,
                                [&] { return write_gguf(source_path, destination, options); });
}

}  // namespace halfbyte::convert
