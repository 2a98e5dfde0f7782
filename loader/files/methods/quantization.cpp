#include "loader/files/methods/quantization.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <system_error>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/file_tree.h"
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

// What would call a copy of the checkpoint quantised in the way that was translated.
struct Leftovers {
  std::span<const std::string_view> config_keys;  // of config.json: what their names begin with
  std::span<const std::string_view> side_files;   // beside config.json
};

// The second is the name of compressed-tensors before 2024.
constexpr auto kConfigKeys = std::to_array<std::string_view>({"quantization_config", "compression_config"});
constexpr auto kSideFiles = std::to_array<std::string_view>(
    {"quantize_config.json", "quant_config.json", "quantization_config.json", "hf_quant_config.json"});
constexpr Leftovers kLeftovers{.config_keys = kConfigKeys, .side_files = kSideFiles};

constexpr auto kIpexConfigKeys = std::to_array<std::string_view>({"bigdl_"});
constexpr auto kIpexSideFiles = std::to_array<std::string_view>({"bigdl_config.json", "load_keys.json"});
constexpr Leftovers kIpexLeftovers{.config_keys = kIpexConfigKeys, .side_files = kIpexSideFiles};

struct Method {
  std::string_view name;  // config.json's quant_method, where it has one
  std::string_view kind;  // Checkpoint::kind
  ReadQuantization* read;
  // Whether a quantization_config without a quant_method is of this method; null: never.
  bool (*owns)(const JsonField& config) = nullptr;
  // Whether the tensors say by their names and shapes that they are of this method; null: they never do.
  bool (*has_tensors)(const Checkpoint& checkpoint) = nullptr;
  bool rounds_values = false;  // Checkpoint::rounds_values
  Leftovers leftovers = kLeftovers;
};

// Those that tensors may tell are tried in this order.
constexpr auto kMethods = std::to_array<Method>({
    {.name = "auto-round", .kind = "AutoRound", .read = read_auto_round},
    {.name = "awq", .kind = "AWQ", .read = read_awq},
    {.name = "bitsandbytes",
     .kind = "bitsandbytes",
     .read = read_bitsandbytes,
     .owns = is_bitsandbytes_config,
     .has_tensors = has_bitsandbytes_weights,
     .rounds_values = true},
    {.name = "compressed-tensors", .kind = "compressed-tensors", .read = read_compressed_tensors},
    {.name = "gptq", .kind = "GPTQ", .read = read_gptq},
    {.name = "intel/auto-round", .kind = "AutoRound", .read = read_auto_round},
    {.name = kIpexLlm, .kind = "ipex-llm", .read = read_ipex_llm, .leftovers = kIpexLeftovers},
    {.name = kModelopt, .kind = "ModelOpt", .read = read_modelopt},
    {.name = "mxfp4", .kind = "MXFP4", .read = read_mxfp4, .has_tensors = has_mxfp4_blocks},
    {.name = "hqq", .kind = "HQQ", .read = read_hqq, .has_tensors = has_hqq_weights},
});

nlohmann::json config_of(const Checkpoint& checkpoint) {
  return checkpoint.has_config() ? nlohmann::json(*checkpoint.config) : nlohmann::json::object();
}

std::string config_path(const Checkpoint& checkpoint) { return printable_path(checkpoint.directory / "config.json"); }

// The name of the method that a quantization_config is of. Errors: kCorrupt: it says none.
std::string method_of(const JsonField& config) {
  const auto owner = std::ranges::find_if(kMethods, [&](const Method& row) { return row.owns && row.owns(config); });
  return owner == kMethods.end() ? config.at("quant_method").string() : std::string(owner->name);
}

std::optional<Declaration> find_in_config(const Checkpoint& checkpoint) {
  Declaration out{.method = {}, .json = models::HeldJson(config_of(checkpoint)), .where = config_path(checkpoint)};
  const JsonField root(*out.json, out.where);
  for (const std::string_view key : kConfigKeys) {
    const auto config = root.find(std::string(key));
    if (!config) continue;
    out.method = method_of(*config);
    out.key = key;
    return out;
  }
  return std::nullopt;
}

std::optional<Declaration> find_by_tensors(const Checkpoint& checkpoint) {
  const auto row = std::ranges::find_if(
      kMethods, [&](const Method& method) { return method.has_tensors && method.has_tensors(checkpoint); });
  if (row == kMethods.end()) return std::nullopt;
  return Declaration{.method = std::string(row->name),
                     .json = models::HeldJson(config_of(checkpoint)),
                     .where = config_path(checkpoint)};
}

// Where a method may be declared; the first that does so is believed.
constexpr auto kPlaces = std::to_array<FindDeclaration*>(
    {find_ipex_llm, find_in_config, find_gptq_side_file, find_modelopt_side_file, find_by_tensors});

void forget(Checkpoint& checkpoint, const Leftovers& leftovers) {
  const auto is_left = [&](std::string_view key) {
    return std::ranges::any_of(leftovers.config_keys, [&](std::string_view start) { return key.starts_with(start); });
  };
  std::vector<std::string> keys;
  if (checkpoint.has_config()) {
    for (const auto& [key, value] : checkpoint.config->items()) {
      if (is_left(key)) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) checkpoint.config->erase(key);
  std::erase_if(checkpoint.side_files, [&](const fs::path& file) {
    return std::ranges::find(leftovers.side_files, file.string()) != leftovers.side_files.end();
  });
}

std::vector<TensorRecord> read_declared(Checkpoint& checkpoint, const Declaration& declaration) {
  const JsonField root(*declaration.json, declaration.where);
  const JsonField config = declaration.key.empty() ? root : root.at(declaration.key);
  const auto row = std::ranges::find(kMethods, declaration.method, &Method::name);
  if (row == kMethods.end()) {
    const auto name = config.find("quant_method");
    fail_unsupported(name ? name->path() : config.path(), "quantisation method " + in_quotes(declaration.method));
  }
  checkpoint.kind = row->kind;
  checkpoint.rounds_values = row->rounds_values;
  std::vector<TensorRecord> out = row->read(checkpoint, config);
  forget(checkpoint, row->leftovers);
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

nlohmann::json read_beside(const Checkpoint& checkpoint, std::string_view name) {
  const fs::path path = checkpoint.directory / name;
  if (!files::is_regular_file(path)) return nullptr;
  return parse_json<nlohmann::json>(read_text(path, kConfigLimits.max_bytes), printable_path(path), kConfigLimits);
}

std::vector<TensorRecord> read_quantization(Checkpoint& checkpoint) {
  for (FindDeclaration* find : kPlaces) {
    if (const auto found = find(checkpoint)) return read_declared(checkpoint, *found);
  }
  refuse_unexplained(checkpoint);
  return with_dense_records(checkpoint, {});
}

}  // namespace halfbyte::files
