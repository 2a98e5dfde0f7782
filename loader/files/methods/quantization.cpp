#include "loader/files/methods/quantization.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <system_error>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/json_text.h"
#include "loader/files/methods/bitsandbytes.h"
#include "loader/files/methods/compressed_tensors.h"
#include "loader/files/methods/float4.h"
#include "loader/files/methods/gptq.h"
#include "loader/files/methods/gptq_config.h"
#include "loader/files/methods/gptq_layout.h"
#include "loader/files/methods/hqq.h"
#include "loader/files/methods/ipex_llm.h"
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
    {"hqq", "HQQ", read_hqq},
    {"intel/auto-round", "AutoRound", read_auto_round},
    {"modelopt", "ModelOpt", read_modelopt},
    {"mxfp4", "MXFP4", read_mxfp4},
});

// The second is the name of compressed-tensors before 2024.
constexpr auto kConfigKeys = std::to_array<const char*>({"quantization_config", "compression_config"});

std::optional<JsonField> quantization_config(const JsonField& config) {
  for (const char* key : kConfigKeys) {
    if (auto field = config.find(key)) return field;
  }
  return std::nullopt;
}

// What the methods keep beside config.json.
constexpr auto kSideFiles = std::to_array<std::string_view>(
    {"quantize_config.json", "quant_config.json", "quantization_config.json", "hf_quant_config.json"});

// What would call a copy of the checkpoint quantised in the way that was translated.
void forget_quantization(Checkpoint& checkpoint) {
  if (checkpoint.config.is_object()) {
    for (const char* key : kConfigKeys) checkpoint.config.erase(key);
  }
  std::erase_if(checkpoint.side_files,
                [](const fs::path& file) { return std::ranges::find(kSideFiles, file.string()) != kSideFiles.end(); });
}

constexpr const char* kIpexKey = "bigdl_transformers_low_bit";

// A file beside the weights; null: there is none.
nlohmann::json read_beside(const Checkpoint& checkpoint, const char* name) {
  const fs::path path = checkpoint.directory / name;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return nullptr;
  return parse_json<nlohmann::json>(read_text(path, kConfigLimits.max_bytes), printable_path(path), kConfigLimits);
}

// `from`: what says the method's name.
std::vector<TensorRecord> read_by_method(Checkpoint& checkpoint, const JsonField& config, const JsonField& from,
                                         const std::string& method) {
  const auto row = std::ranges::find(kMethods, method, &Method::quant_method);
  if (row == kMethods.end()) fail_unsupported(from.path(), "quantisation method " + in_quotes(method));
  checkpoint.kind = row->kind;
  std::vector<TensorRecord> out = row->read(checkpoint, config);
  forget_quantization(checkpoint);
  return out;
}

std::vector<TensorRecord> read_declared(Checkpoint& checkpoint, const JsonField& config) {
  if (is_bitsandbytes_config(config)) return read_by_method(checkpoint, config, config, "bitsandbytes");
  const JsonField method = config.at("quant_method");
  return read_by_method(checkpoint, config, method, method.string());
}

// Where ModelOpt's words were before config.json had them.
constexpr const char* kModeloptFile = "hf_quant_config.json";

std::optional<std::vector<TensorRecord>> read_modelopt_file(Checkpoint& checkpoint) {
  if (!checkpoint.has_config_file) return std::nullopt;  // of a lone file, it would be another model's
  const nlohmann::json config = read_beside(checkpoint, kModeloptFile);
  if (config.is_null()) return std::nullopt;
  const JsonField quantization =
      JsonField(config, printable_path(checkpoint.directory / kModeloptFile)).at("quantization");
  if (!quantization.find("quant_algo")) return std::nullopt;
  return read_by_method(checkpoint, quantization, quantization, "modelopt");
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

struct Signature {
  bool (*is_there)(const Checkpoint&);
  std::string_view quant_method;
};

// Formats whose tensors say by their names and shapes what they are.
constexpr auto kSignatures = std::to_array<Signature>({
    {has_bitsandbytes_weights, "bitsandbytes"},
    {has_mxfp4_blocks, "mxfp4"},
    {has_hqq_weights, "hqq"},
});

// Without a quantization_config: what a file of its own says, or what the tensors do.
std::vector<TensorRecord> read_undeclared(Checkpoint& checkpoint, const JsonField& config) {
  if (const auto side = find_side_config(checkpoint)) {
    const JsonField config_file(side->json, printable_path(side->file));
    return read_by_method(checkpoint, config_file, config_file, side->method);
  }
  if (auto records = read_modelopt_file(checkpoint)) return *std::move(records);
  const auto row = std::ranges::find_if(kSignatures, [&](const Signature& s) { return s.is_there(checkpoint); });
  if (row != kSignatures.end()) return read_by_method(checkpoint, config, config, std::string(row->quant_method));
  refuse_unexplained(checkpoint);
  return with_dense_records(checkpoint, {});
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
  const nlohmann::json ipex = config.contains(kIpexKey) ? config : read_beside(checkpoint, "bigdl_config.json");
  if (ipex.is_object() && ipex.contains(kIpexKey)) {
    checkpoint.kind = "ipex-llm";
    return read_ipex_llm(checkpoint, JsonField(ipex, root.path()).at(kIpexKey));
  }
  const auto quantization = quantization_config(root);
  return quantization ? read_declared(checkpoint, *quantization) : read_undeclared(checkpoint, root);
}

}  // namespace halfbyte::files
