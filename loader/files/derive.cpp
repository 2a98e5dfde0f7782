#include "loader/files/derive.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {
namespace {

bool has(const std::vector<TensorRecord>& sorted, std::string_view name) {
  return std::ranges::binary_search(sorted, name, {}, [](const TensorRecord& t) { return std::string_view(t.name); });
}

// Only those that the files bear out: the alias is not stored, the owner is. What else is amiss the loader will say.
void add_what_the_family_says(const Checkpoint& checkpoint, Manifest& out) {
  const models::ModelConfig config = checkpoint.model_config();
  for (auto& tie : checkpoint.architecture->ties(config)) {
    if (!has(out.tensors, tie.first) && has(out.tensors, tie.second)) out.ties.push_back(std::move(tie));
  }
  out.buffers = checkpoint.architecture->derived(config);
  std::erase_if(out.buffers, [&](const models::DerivedBuffer& buffer) { return has(out.tensors, buffer.name); });
}

}  // namespace

TensorRecord dense_record(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  TensorRecord out;
  out.name = tensor.name;
  out.is_buffer = models::role_of(checkpoint.architecture, tensor.name, tensor.shape) == models::Role::kBuffer;
  out.shape = tensor.shape;
  out.original_dtype = tensor.dtype;
  out.stored_dtype = tensor.dtype;
  out.parts[Part::kCodes] = tensor.name;
  out.size_bytes = tensor.size_bytes;
  return out;
}

std::vector<std::pair<std::string, std::string>> declared_ties(const Checkpoint& checkpoint) try {
  if (!checkpoint.architecture) return {};
  return checkpoint.architecture->ties(checkpoint.model_config());
} catch (const Error& error) {
  if (error.code() != ErrorCode::kUnsupported) throw;
  return {};
}

Manifest derive_manifest(Checkpoint& checkpoint, std::vector<TensorRecord> packed) {
  Manifest out;
  out.is_derived = true;
  out.declared_dtype = models::declared_dtype(nlohmann::json(*checkpoint.config));
  out.tensors = packed.empty() ? read_quantization(checkpoint) : with_dense_records(checkpoint, std::move(packed));
  out.source_kind = checkpoint.kind;
  for (const auto& file : checkpoint.data_files) {
    if (!file->is_on_disk()) continue;
    out.source_files.push_back({file->path().filename().string(), file->size_bytes(), {}});
  }
  std::ranges::sort(out.tensors, {}, &TensorRecord::name);
  try {
    if (checkpoint.architecture) add_what_the_family_says(checkpoint, out);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    checkpoint.notes.emplace_back(error.what());
  }
  return out;
}

}  // namespace halfbyte::files
