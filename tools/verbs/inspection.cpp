#include "tools/verbs/inspection.h"

#include <cmath>

namespace halfbyte::cli {
namespace {

std::uint64_t value_count(const files::TensorRecord& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= static_cast<std::uint64_t>(size);
  return count;
}

std::uint64_t original_bytes(const files::TensorRecord& tensor, std::uint64_t values) {
  if (!tensor.original_dtype) return tensor.size_bytes;
  return values * static_cast<std::uint64_t>(info(*tensor.original_dtype).bits) / 8;
}

void add(Tally& tally, std::uint64_t values, std::uint64_t size_bytes) {
  ++tally.tensors;
  tally.values += values;
  tally.size_bytes += size_bytes;
}

}  // namespace

std::string stored_as(const files::TensorRecord& tensor) {
  if (tensor.scheme == nullptr) return std::string(name(tensor.stored_dtype));
  const bool is_per_channel = !tensor.shape.empty() && tensor.group_size == tensor.shape.back();
  return std::string(tensor.scheme->name) + (is_per_channel ? " channel" : " g" + std::to_string(tensor.group_size)) +
         (tensor.nested_offset ? " nested" : "");
}

std::string original_dtype_name(const files::TensorRecord& tensor) {
  return tensor.original_dtype ? std::string(name(*tensor.original_dtype)) : "not known";
}

Inspection inspect(const files::Checkpoint& checkpoint) {
  Inspection result;
  double weighted_square = 0;
  double weight = 0;
  for (const files::TensorRecord& tensor : checkpoint.manifest.tensors) {
    const std::uint64_t values = value_count(tensor);
    if (!tensor.is_buffer) {
      result.parameters += values;
      result.parameter_bytes += tensor.size_bytes;
    }
    add(result.stored[stored_as(tensor)], values, tensor.size_bytes);
    add(result.original[original_dtype_name(tensor)], values, original_bytes(tensor, values));
    if (!tensor.error) continue;
    ++result.with_error;
    weighted_square += tensor.error->rel_rmse * tensor.error->rel_rmse * static_cast<double>(values);
    weight += static_cast<double>(values);
    if (result.worst == nullptr || tensor.error->rel_rmse > result.worst->error->rel_rmse) result.worst = &tensor;
  }
  if (weight > 0) result.rel_rmse = std::sqrt(weighted_square / weight);
  for (const auto& [tensor, reason] : checkpoint.manifest.kept) result.kept[reason].push_back(tensor);
  return result;
}

}  // namespace halfbyte::cli
