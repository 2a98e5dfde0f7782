// `inspect --json`; docs/json.md has it field by field.
#include "tools/cli/output.h"

#include <nlohmann/json.hpp>

#include "tools/verbs/inspect_output.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

ordered_json tallies_json(const std::map<std::string, Tally>& tallies) {
  ordered_json result = ordered_json::object();
  for (const auto& [label, tally] : tallies) {
    result[label] = {{"tensors", tally.tensors}, {"values", tally.values}, {"bytes", tally.size_bytes}};
  }
  return result;
}

ordered_json dtype_json(const std::optional<Dtype>& dtype) {
  return dtype ? ordered_json(name(*dtype)) : ordered_json(nullptr);
}

ordered_json tensor_json(const files::TensorRecord& tensor) {
  ordered_json row = {{"name", tensor.name},
                      {"kind", tensor.is_buffer ? "buffer" : "parameter"},
                      {"shape", tensor.shape},
                      {"original_dtype", dtype_json(tensor.original_dtype)},
                      {"stored", tensor.scheme != nullptr ? tensor.scheme->name : name(tensor.stored_dtype)},
                      {"group_size", nullptr},
                      {"bytes", tensor.size_bytes},
                      {"rel_rmse", nullptr},
                      {"max_abs", nullptr}};
  if (tensor.scheme != nullptr) row["group_size"] = tensor.group_size;
  if (tensor.error) {
    row["rel_rmse"] = tensor.error->rel_rmse;
    row["max_abs"] = tensor.error->max_abs;
  }
  return row;
}

ordered_json source_json(const files::Manifest& manifest) {
  if (manifest.is_derived) return nullptr;
  ordered_json files = ordered_json::array();
  for (const files::SourceFile& file : manifest.source_files) {
    files.push_back({{"name", file.name}, {"bytes", file.size_bytes}, {"xxh3_128", file.xxh3_128}});
  }
  return {{"kind", manifest.source_kind},
          {"declared_dtype", dtype_json(manifest.declared_dtype)},
          {"files", std::move(files)}};
}

ordered_json error_json(const Inspection& inspection) {
  if (inspection.worst == nullptr) return nullptr;
  return {{"tensors", inspection.with_error},
          {"rel_rmse", inspection.rel_rmse},
          {"worst", {{"name", inspection.worst->name}, {"rel_rmse", inspection.worst->error->rel_rmse}}}};
}

ordered_json relations_json(const files::Manifest& manifest, ordered_json result) {
  result["ties"] = ordered_json::array();
  for (const auto& [alias, owner] : manifest.ties) result["ties"].push_back({alias, owner});
  result["derived_buffers"] = ordered_json::array();
  for (const models::DerivedBuffer& buffer : manifest.buffers) {
    result["derived_buffers"].push_back(
        {{"name", buffer.name}, {"original_dtype", name(buffer.original_dtype)}, {"how", buffer.how}});
  }
  return result;
}

}  // namespace

void print_inspection_json(const std::string& path, const files::Checkpoint& checkpoint, const Inspection& inspection,
                           bool list_tensors) {
  const files::Manifest& manifest = checkpoint.manifest;
  ordered_json result = {
      {"path", path},
      {"family", nullptr},
      {"bytes", checkpoint.size_bytes},
      {"format", manifest.is_derived ? checkpoint.kind : "halfbyte"},
      {"files", std::ranges::count_if(checkpoint.data_files, [](const auto& f) { return f->is_on_disk(); })},
      {"parameters", inspection.parameters},
      {"bits_per_weight", inspection.bits_per_weight()},
      {"manifest", manifest.is_derived ? "derived" : "halfbyte.json"},
      {"created_by", manifest.created_by},
      {"source", source_json(manifest)},
      {"recommended_dtype", manifest.recommended_dtype},
      {"keep_float32", manifest.keep_float32},
      {"notes", checkpoint.notes},
      {"stored", tallies_json(inspection.stored)},
      {"original_dtypes", tallies_json(inspection.original)},
      {"kept", inspection.kept},
      {"error", error_json(inspection)}};
  if (checkpoint.architecture != nullptr) result["family"] = checkpoint.architecture->model_type;
  result = relations_json(manifest, std::move(result));
  if (list_tensors) {
    result["tensors"] = ordered_json::array();
    for (const files::TensorRecord& tensor : manifest.tensors) result["tensors"].push_back(tensor_json(tensor));
  }
  print_json(result);
}

}  // namespace halfbyte::cli
