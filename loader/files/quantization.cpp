#include "loader/files/quantization.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include <halfbyte/error.h>

#include "loader/files/compressed_tensors.h"
#include "loader/files/derive.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

struct Method {
  std::string_view quant_method;
  std::string_view kind;  // Checkpoint::kind
  ReadQuantization* read;
};

constexpr auto kMethods = std::to_array<Method>({
    {"compressed-tensors", "compressed-tensors", read_compressed_tensors},
});

std::optional<JsonField> quantization_config(const JsonField& config) {
  if (const auto field = config.find("bigdl_transformers_low_bit"))
    fail_unsupported(field->path(), "ipex-llm's format");
  const auto field = config.find("quantization_config");
  return field ? field : config.find("compression_config");  // the name of compressed-tensors before 2024
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
  const auto quantization = quantization_config(root);
  if (!quantization) return with_dense_records(checkpoint, {});
  const JsonField method = quantization->at("quant_method");
  const auto row = std::ranges::find(kMethods, method.string(), &Method::quant_method);
  if (row == kMethods.end()) fail_unsupported(method.path(), "quantisation method " + in_quotes(method.string()));
  checkpoint.kind = row->kind;
  return row->read(checkpoint, *quantization);
}

}  // namespace halfbyte::files
