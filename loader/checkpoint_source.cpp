#include "loader/checkpoint_source.h"

#include <algorithm>

#include <ATen/ops/from_blob.h>

#include <halfbyte/operators.h>

#include "models/dtype_rules.h"

namespace halfbyte {
namespace {

using files::TensorRecord;
using models::Role;

std::string scheme_text(const TensorRecord& record) {
  const bool is_per_channel = record.group_size == record.shape.at(1);
  return std::string(record.scheme->name) +
         (is_per_channel ? " per channel" : " g" + std::to_string(record.group_size));
}

bool is_aligned(const void* data, std::int64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0;
}

}  // namespace

CheckpointSource::CheckpointSource(const files::Checkpoint& checkpoint, const LoadOptions& options, LoadReport& report)
    : checkpoint_(checkpoint), options_(options), report_(report), maps_(checkpoint.data_files.size()) {}

std::string CheckpointSource::owner_of(const std::string& name) const {
  const auto& ties = checkpoint_.manifest.ties;
  const auto tie = std::ranges::find(ties, name, &std::pair<std::string, std::string>::first);
  return tie == ties.end() ? name : tie->second;
}

const TensorRecord& CheckpointSource::record(const std::string& name) const {
  if (const TensorRecord* found = checkpoint_.manifest.find(owner_of(name))) return *found;
  throw Error(ErrorCode::kCorrupt, checkpoint_.directory.string() + ": tensor " + name + " is missing");
}

// A tied tensor is an operand of the head's product, so that is the role that decides its dtype.
Role CheckpointSource::role_of(const std::string& name) const {
  for (const auto& [alias, owner] : checkpoint_.manifest.ties) {
    if (owner == name || alias == name) return Role::kHead;
  }
  return models::role_of(checkpoint_.architecture, name, record(name).shape);
}

bool CheckpointSource::is_kept_float32(const std::string& name) const {
  const auto matches = [&](const std::string& pattern) { return files::matches_pattern(pattern, name); };
  return std::ranges::any_of(checkpoint_.manifest.keep_float32, matches) ||
         std::ranges::any_of(options_.keep_float32, matches);
}

at::Tensor CheckpointSource::stored(const std::string& name) {
  const files::StoredTensor& tensor = *checkpoint_.find(name);
  auto& map = maps_.at(tensor.file);
  if (!map) map = files::map_data_file(checkpoint_, tensor.file);
  std::byte* data = map->bytes().data() + tensor.offset;
  const auto type = to_torch(tensor.dtype);
  if (!type) {
    throw Error(ErrorCode::kUnsupported, name + " is stored as " + std::string(halfbyte::name(tensor.dtype)) +
                                             ", which LibTorch has no tensors of");
  }
  return at::from_blob(
      data, tensor.shape, [map](void*) {}, at::TensorOptions().dtype(*type));
}

at::Tensor CheckpointSource::dense(const std::string& name) {
  const std::string owner = owner_of(name);
  const TensorRecord& tensor = record(name);
  if (const auto found = shared_.find(owner); found != shared_.end()) {
    report_.tensors.push_back({name, tensor.is_buffer, tensor.original_dtype,
                               std::string(c10::toString(found->second.scalar_type())), 0, Placement::kMapped,
                               "tied to " + owner});
    report_.tensors.back().loaded = halfbyte::name(*from_torch(found->second.scalar_type()));
    return found->second;
  }
  const bool is_kept = is_kept_float32(owner);
  const Dtype recorded = tensor.original_dtype.value_or(tensor.stored_dtype);
  const Dtype wanted = models::loaded_dtype(options_.dtype, role_of(owner), recorded, is_kept);
  at::Tensor value;
  LoadedTensor line{name, tensor.is_buffer, tensor.original_dtype, std::string(halfbyte::name(wanted)), 0, {}, {}};
  if (tensor.scheme) {
    const models::LowBitTensor low_bit = packed(tensor);
    value = operators::dequantize(low_bit.codes, low_bit.scales, tensor.scheme->name, low_bit.in_features,
                                  low_bit.group_size, weight_scalar_type(wanted));
    line.note = "dequantised from " + scheme_text(tensor);
  } else {
    value = stored(tensor.parts[files::Part::kCodes]);
  }
  const at::ScalarType type = weight_scalar_type(wanted);
  if (tensor.scheme || value.scalar_type() != type) {
    value = value.to(type);
    line.placement = Placement::kCast;
  } else if (!is_aligned(value.const_data_ptr(), size_bytes(wanted))) {
    value = value.clone();
    line.placement = Placement::kCopied;
  }
  line.bytes = static_cast<std::uint64_t>(value.nbytes());
  if (is_kept) line.note = "kept in float32";
  report_.tensors.push_back(std::move(line));
  shared_.emplace(owner, value);
  return value;
}

models::LowBitTensor CheckpointSource::packed(const TensorRecord& tensor) {
  return {stored(tensor.parts[files::Part::kCodes]), stored(tensor.parts[files::Part::kScale]), tensor.scheme, tensor.shape.at(1), tensor.group_size};
}

at::Tensor CheckpointSource::parameter(const std::string& name) { return dense(name); }

models::LinearWeights CheckpointSource::linear(const std::string& module, bool has_bias) {
  const std::string name = module + ".weight";
  const TensorRecord& tensor = record(name);
  models::LinearWeights weights;
  if (tensor.scheme) {
    weights.weight = packed(tensor);
    report_.tensors.push_back({name, false, tensor.original_dtype, scheme_text(tensor), tensor.size_bytes,
                               Placement::kMapped, is_kept_float32(name) ? "packed: keep_float32 has no effect" : ""});
  } else {
    weights.weight = dense(name);
  }
  if (has_bias) weights.bias = dense(module + ".bias");
  return weights;
}

at::ScalarType CheckpointSource::derived_buffer_dtype(const std::string& name) {
  const auto& buffers = checkpoint_.manifest.buffers;
  const auto buffer = std::ranges::find(buffers, name, &models::DerivedBuffer::name);
  const Dtype recorded = buffer == buffers.end() ? Dtype::kFloat32 : buffer->original_dtype;
  const Dtype wanted = models::loaded_dtype(options_.dtype, Role::kBuffer, recorded, is_kept_float32(name));
  report_.tensors.push_back({name, true, recorded, std::string(halfbyte::name(wanted)), 0, Placement::kDerived,
                             "tables are made in float32 and cast last"});
  return weight_scalar_type(wanted);
}

void CheckpointSource::report_unused_buffers() {
  for (const TensorRecord& tensor : checkpoint_.manifest.tensors) {
    if (models::role_of(checkpoint_.architecture, tensor.name, tensor.shape) != Role::kBuffer) continue;
    report_.notes.push_back(tensor.name + " is stored, but this family derives it: the stored values are not used");
  }
}

}  // namespace halfbyte
