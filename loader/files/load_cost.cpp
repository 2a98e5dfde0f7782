#include "loader/files/load_cost.h"

#include <algorithm>

#include "models/dtype_rules.h"

namespace halfbyte::files {
namespace {

using models::Role;

std::string scheme_text(const TensorRecord& record) {
  const bool is_per_channel = !record.shape.empty() && record.group_size == record.shape.back();
  return std::string(record.scheme->name) +
         (is_per_channel ? " per channel" : " g" + std::to_string(record.group_size));
}

class Estimate {
 public:
  Estimate(const Checkpoint& checkpoint, const DtypePolicy& policy, const std::vector<std::string>& keep_float32)
      : checkpoint_(checkpoint), policy_(policy), keep_float32_(keep_float32) {}

  LoadCost run() {
    out_.report.policy = policy_.name();
    out_.report.is_manifest_derived = checkpoint_.manifest.is_derived;
    for (const TensorRecord& record : checkpoint_.manifest.tensors) add(record);
    for (const auto& [alias, owner] : checkpoint_.manifest.ties) add_alias(alias, owner);
    for (const models::DerivedBuffer& buffer : checkpoint_.manifest.buffers) add_derived(buffer);
    return std::move(out_);
  }

 private:
  bool is_kept_float32(const std::string& name) const {
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, name); };
    return std::ranges::any_of(checkpoint_.manifest.keep_float32, matches) ||
           std::ranges::any_of(keep_float32_, matches);
  }

  // A tied tensor is an operand of the head's product.
  Role role_of(const TensorRecord& record) const {
    const bool is_tied = std::ranges::any_of(checkpoint_.manifest.ties, [&](const auto& tie) {
      return tie.first == record.name || tie.second == record.name;
    });
    return is_tied ? Role::kHead : models::role_of(checkpoint_.architecture, record.name, record.shape);
  }

  LoadedTensor line_of(const TensorRecord& record) const {
    LoadedTensor line;
    line.name = record.name;
    line.is_buffer = record.is_buffer;
    line.recorded = record.original_dtype;
    return line;
  }

  void add(const TensorRecord& record) {
    const Role role = role_of(record);
    if (checkpoint_.architecture && role == Role::kBuffer) {
      out_.report.notes.push_back(record.name + " is stored, but this family derives it: it is not loaded");
      return;
    }
    LoadedTensor line = line_of(record);
    if (record.scheme && role != Role::kEmbedding) {
      line.loaded = scheme_text(record);
      line.bytes = record.size_bytes;
      if (is_kept_float32(record.name)) line.note = "packed: keep_float32 has no effect";
    } else {
      add_dense(record, role, line);
    }
    loaded_dtypes_.emplace_back(record.name, line.loaded);
    out_.report.tensors.push_back(std::move(line));
  }

  void add_dense(const TensorRecord& record, Role role, LoadedTensor& line) {
    const bool is_kept = is_kept_float32(record.name);
    const Dtype recorded = record.original_dtype.value_or(record.scheme ? record.scale_dtype : record.stored_dtype);
    const Dtype wanted = models::loaded_dtype(policy_, role, recorded, is_kept);
    const auto width = static_cast<std::uint64_t>(size_bytes(wanted));
    line.loaded = name(wanted);
    line.bytes = value_count(record) * width;
    if (record.scheme || record.stored_dtype != wanted) {
      line.placement = Placement::kCast;
    } else if (width > 0 && checkpoint_.find(record.parts[Part::kCodes])->offset % width != 0) {
      line.placement = Placement::kCopied;
    }
    if (line.placement != Placement::kMapped) out_.read_to_cast_bytes += record.size_bytes;
    if (record.scheme) line.note = "dequantised from " + scheme_text(record);
    if (is_kept) line.note = "kept in float32";
  }

  static std::uint64_t value_count(const TensorRecord& record) {
    std::uint64_t count = 1;
    for (const std::int64_t size : record.shape) count *= static_cast<std::uint64_t>(size);
    return count;
  }

  void add_alias(const std::string& alias, const std::string& owner) {
    const auto found = std::ranges::find(loaded_dtypes_, owner, &std::pair<std::string, std::string>::first);
    if (found == loaded_dtypes_.end()) return;
    LoadedTensor line = line_of(*checkpoint_.manifest.find(owner));
    line.name = alias;
    line.loaded = found->second;
    line.note = "tied to " + owner;
    out_.report.tensors.push_back(std::move(line));
  }

  void add_derived(const models::DerivedBuffer& buffer) {
    LoadedTensor line;
    line.name = buffer.name;
    line.is_buffer = true;
    line.recorded = buffer.original_dtype;
    line.loaded =
        name(models::loaded_dtype(policy_, Role::kBuffer, buffer.original_dtype, is_kept_float32(buffer.name)));
    line.placement = Placement::kDerived;
    line.note = "tables are made in float32 and cast last";
    out_.report.tensors.push_back(std::move(line));
  }

  const Checkpoint& checkpoint_;
  const DtypePolicy& policy_;
  const std::vector<std::string>& keep_float32_;
  LoadCost out_;
  std::vector<std::pair<std::string, std::string>> loaded_dtypes_;  // owner -> what it became
};

}  // namespace

LoadCost load_cost(const Checkpoint& checkpoint, const DtypePolicy& policy,
                   const std::vector<std::string>& keep_float32) {
  return Estimate(checkpoint, policy, keep_float32).run();
}

}  // namespace halfbyte::files
