#include "tools/server/api/load_report_json.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "loader/files/manifest.h"

namespace halfbyte::server {

using Json = nlohmann::ordered_json;

models::HeldOrderedJson json_of(const LoadReport& report) {
  Json tensors = Json::array(), libraries = Json::object();
  std::map<std::string, std::uint64_t> loaded;  // bytes by dtype or scheme
  for (const LoadedTensor& tensor : report.tensors) {
    loaded[tensor.loaded] += tensor.bytes;
    tensors.push_back({{"name", tensor.name},
                       {"recorded", tensor.recorded ? Json(std::string(name(*tensor.recorded))) : Json(nullptr)},
                       {"loaded", tensor.loaded},
                       {"placement", name(tensor.placement)},
                       {"bytes", tensor.bytes},
                       {"note", tensor.note}});
  }
  for (const LibraryVersion& library : report.versions) libraries[library.name] = library.running;
  return models::HeldOrderedJson(Json{{"policy", report.policy},
                                      {"operand_dtype", report.operand_dtype},
                                      {"stream_dtype", report.stream_dtype},
                                      {"compute", report.compute},
                                      {"key_values", report.key_values},
                                      {"device", report.device},
                                      {"device_reason", report.device_reason},
                                      {"identity", report.identity},
                                      {"bytes",
                                       {{"mapped", report.bytes_with(Placement::kMapped)},
                                        {"cast", report.bytes_with(Placement::kCast)},
                                        {"copied", report.bytes_with(Placement::kCopied)},
                                        {"moved", report.bytes_with(Placement::kMoved)}}},
                                      {"bytes_by_dtype", loaded},
                                      {"notes", report.notes},
                                      {"libraries", std::move(libraries)},
                                      {"tensors", std::move(tensors)}});
}

models::HeldOrderedJson manifest_summary(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / files::kManifestFile;
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const files::Manifest manifest = files::parse_manifest(text, path.string());
  std::map<std::string, std::int64_t> schemes;
  std::int64_t kept = 0;
  std::uint64_t bytes = 0;
  double squares = 0, values = 0;  // of errors, each as often as its tensor has values
  for (const files::TensorRecord& tensor : manifest.tensors) {
    bytes += tensor.size_bytes;
    tensor.scheme ? ++schemes[std::string(tensor.scheme->name)] : ++kept;
    double count = tensor.error ? 1 : 0;
    for (const std::int64_t size : tensor.shape) count *= static_cast<double>(size);
    if (tensor.error) squares += count * tensor.error->rel_rmse * tensor.error->rel_rmse;
    values += count;
  }
  std::int64_t quantized = 0;
  for (const auto& [name, count] : schemes) quantized += count;
  return models::HeldOrderedJson(Json{{"created_by", manifest.created_by},
                                      {"source", manifest.source_kind},
                                      {"quantized_tensors", quantized},
                                      {"kept_tensors", kept},
                                      {"schemes", schemes},
                                      {"bytes", bytes},
                                      {"rel_rmse", values > 0 ? Json(std::sqrt(squares / values)) : Json(nullptr)}});
}

}  // namespace halfbyte::server
