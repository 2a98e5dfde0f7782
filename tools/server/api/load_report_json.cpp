#include "tools/server/api/load_report_json.h"

#include <map>

#include <nlohmann/json.hpp>

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

}  // namespace halfbyte::server
