#include "tools/report/checkpoint_facts.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "tools/verbs/inspection.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const std::map<std::string, Tally>& tallies) {
  ordered_json out = ordered_json::object();
  for (const auto& [what, tally] : tallies)
    out[what] = {{"tensors", tally.tensors}, {"values", tally.values}, {"bytes", tally.size_bytes}};
  return out;
}

ordered_json json_of(const files::TensorRecord& tensor, const files::Manifest& manifest) {
  const auto kept = manifest.kept.find(tensor.name);
  return {{"name", tensor.name},
          {"shape", tensor.shape},
          {"original_dtype", original_dtype_name(tensor)},
          {"stored", stored_as(tensor)},
          {"bytes", tensor.size_bytes},
          {"rel_rmse", tensor.error ? ordered_json(tensor.error->rel_rmse) : ordered_json()},
          {"reason", kept == manifest.kept.end() ? "" : kept->second}};
}

double values_of(const files::TensorRecord& tensor) {
  double values = 1;
  for (const std::int64_t size : tensor.shape) values *= static_cast<double>(size);
  return values;
}

ordered_json linear_bits(const files::Manifest& manifest) {
  double values = 0, bytes = 0;
  for (const files::TensorRecord& tensor : manifest.tensors) {
    if (!tensor.scheme) continue;
    values += values_of(tensor);
    bytes += static_cast<double>(tensor.size_bytes);
  }
  return values > 0 ? ordered_json(8 * bytes / values) : ordered_json();
}

ordered_json source_of(const files::Manifest& manifest) {
  if (manifest.is_derived) return nullptr;
  ordered_json files = ordered_json::array();
  for (const files::SourceFile& file : manifest.source_files)
    files.push_back({{"name", file.name}, {"bytes", file.size_bytes}, {"xxh3_128", file.xxh3_128}});
  return {{"kind", manifest.source_kind}, {"files", files}};
}

std::string name_of(const std::filesystem::path& path) {
  const std::filesystem::path whole = path.has_filename() ? path : path.parent_path();
  return whole.filename().string();
}

}  // namespace

ordered_json checkpoint_facts(const std::string& path) {
  const files::Checkpoint checkpoint = files::open_checkpoint(path);
  const files::Manifest& manifest = checkpoint.manifest;
  const Inspection found = inspect(checkpoint);
  std::uint64_t bytes = 0;
  ordered_json tensors = ordered_json::array();
  for (const files::TensorRecord& tensor : manifest.tensors) {
    bytes += tensor.size_bytes;
    tensors.push_back(json_of(tensor, manifest));
  }
  return {{"name", name_of(path)},
          {"bytes", bytes},
          {"parameters", found.parameters},
          {"bits_per_weight", found.bits_per_weight()},
          {"linear_bits", linear_bits(manifest)},
          {"stored", json_of(found.stored)},
          {"original_dtypes", json_of(found.original)},
          {"tensors", tensors},
          {"rel_rmse", found.with_error > 0 ? ordered_json(found.rel_rmse) : ordered_json()},
          {"created_by", manifest.is_derived ? ordered_json() : ordered_json(manifest.created_by)},
          {"source", source_of(manifest)}};
}

}  // namespace halfbyte::cli
