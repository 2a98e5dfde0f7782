#include "loader/files/quantization.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <system_error>

#include <halfbyte/error.h>

#include "loader/files/compressed_tensors.h"
#include "loader/files/derive.h"
#include "loader/files/formats/bitsandbytes.h"
#include "loader/files/formats/gptq.h"
#include "loader/files/formats/gptq_config.h"
#include "loader/files/formats/gptq_layout.h"
#include "loader/files/formats/ipex_llm.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

struct Method {
  std::string_view quant_method;
  std::string_view kind;  // Checkpoint::kind
  ReadQuantization* read;
};

constexpr auto kMethods = std::to_array<Method>({
    {"auto-round", "AutoRound", read_auto_round},
    {"awq", "AWQ", read_awq},
    {"bitsandbytes", "bitsandbytes", read_bitsandbytes},
    {"compressed-tensors", "compressed-tensors", read_compressed_tensors},
    {"gptq", "GPTQ", read_gptq},
    {"intel/auto-round", "AutoRound", read_auto_round},
});

// The second is the name of compressed-tensors before 2024.
constexpr auto kConfigKeys = std::to_array<const char*>({"quantization_config", "compression_config"});

std::optional<JsonField> quantization_config(const JsonField& config) {
  for (const char* key : kConfigKeys) {
    if (const auto field = config.find(key)) return field;
  }
  return std::nullopt;
}

std::string method_name(const JsonField& config) {
  return is_bitsandbytes_config(config) ? "bitsandbytes" : config.at("quant_method").string();
}

constexpr const char* kIpexKey = "bigdl_transformers_low_bit";

// What ipex-llm's optimize_model saved beside the weights; null: nothing.
nlohmann::json ipex_config(const Checkpoint& checkpoint) {
  const fs::path path = checkpoint.directory / "bigdl_config.json";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return nullptr;
  return parse_json<nlohmann::json>(read_text(path, kConfigLimits.max_bytes), printable_path(path), kConfigLimits);
}

std::vector<TensorRecord> read_by_method(Checkpoint& checkpoint, const JsonField& config, const JsonField& from,
                                         const std::string& method) {
  const auto row = std::ranges::find(kMethods, method, &Method::quant_method);
  if (row == kMethods.end()) fail_unsupported(from.path(), "quantisation method " + in_quotes(method));
  checkpoint.kind = row->kind;
  std::vector<TensorRecord> out = row->read(checkpoint, config);
  // Not to be taken for what a copy of the checkpoint is.
  if (checkpoint.config.is_object()) {
    for (const char* key : kConfigKeys) checkpoint.config.erase(key);
  }
  return out;
}

// Codes that nothing explains would be taken for weights.
void refuse_unexplained(const Checkpoint& checkpoint) {
  const auto codes = std::ranges::find_if(checkpoint.tensors,
                                          [](const StoredTensor& tensor) { return tensor.name.ends_with(kGptqCodes); });
  if (codes == checkpoint.tensors.end()) return;
  throw Error(ErrorCode::kUnsupported, printable_path(checkpoint.data_files[codes->file]->path()) + ": tensor " +
                                           in_quotes(codes->name) +
                                           " is packed, and no quantization_config says how; give the directory with "
                                           "its config.json or quantize_config.json");
}

}  // namespace

std::vector<TensorRecord> with_dense_records(const Checkpoint& checkpoint, std::vector<TensorRecord> packed) {
  std::set<std::string> parts;
  for (const TensorRecord& record : packed) parts.insert(record.parts.names.begin(), record.parts.names.end());
  for (const StoredTensor& tensor : checkpoint.tensors) {
    if (!parts.contains(tensor.name)) packed.push_back(dense_record(checkpoint, tensor));
  }
  return packed;
}

void fail_unsupported(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              where + ": " + what + " is not read by this version; use the original checkpoint");
}

std::vector<TensorRecord> read_quantization(Checkpoint& checkpoint) {
  const nlohmann::json config =
      checkpoint.config.is_null() ? nlohmann::json::object() : nlohmann::json(checkpoint.config);
  const JsonField root(config, printable_path(checkpoint.directory / "config.json"));
  const nlohmann::json ipex = config.contains(kIpexKey) ? config : ipex_config(checkpoint);
  if (ipex.is_object() && ipex.contains(kIpexKey)) {
    checkpoint.kind = "ipex-llm";
    return read_ipex_llm(checkpoint, JsonField(ipex, root.path()).at(kIpexKey));
  }
  if (const auto quantization = quantization_config(root)) {
    const JsonField method = is_bitsandbytes_config(*quantization) ? *quantization : quantization->at("quant_method");
    return read_by_method(checkpoint, *quantization, method, method_name(*quantization));
  }
  if (const auto side = find_side_config(checkpoint)) {
    const JsonField config_file(side->json, printable_path(side->file));
    return read_by_method(checkpoint, config_file, config_file, side->method);
  }
  refuse_unexplained(checkpoint);
  return with_dense_records(checkpoint, {});
}

}  // namespace halfbyte::files
