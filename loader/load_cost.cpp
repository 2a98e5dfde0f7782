#include "loader/load_cost.h"

#include <algorithm>

#include "loader/dtype_choice.h"
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
  Estimate(const Checkpoint& checkpoint, const LoadOptions& options)
      : checkpoint_(checkpoint), options_(options), choice_(checkpoint, options) {}

  LoadCost run() {
    out_.report.policy = options_.dtype.name();
    out_.report.is_manifest_derived = checkpoint_.manifest.is_derived;
    for (const TensorRecord& record : checkpoint_.manifest.tensors) add(record);
    for (const auto& [alias, owner] : checkpoint_.manifest.ties) add_alias(alias, owner);
    for (const models::DerivedBuffer& buffer : checkpoint_.manifest.buffers) add_derived(buffer);
    return std::move(out_);
  }

 private:
  // `name` may be an alias: the head's product reads what the embedding only looks up.
  std::string operand_of(const std::string& name, const TensorRecord& record) const {
    const Role role = models::role_of(checkpoint_.architecture, name, record.shape);
    return role == Role::kLinear || role == Role::kHead ? choice_.operand_of(name) : "";
  }

  LoadedTensor line_of(const TensorRecord& record) const {
    LoadedTensor line;
    line.name = record.name;
    line.is_buffer = record.is_buffer;
    line.recorded = record.original_dtype;
    line.operand = operand_of(record.name, record);
    return line;
  }

  void add(const TensorRecord& record) {
    const Role role = choice_.role_of(record);
    if (checkpoint_.architecture && role == Role::kBuffer) {
      out_.report.notes.push_back(record.name + " is stored, but this family derives it: it is not loaded");
      return;
    }
    LoadedTensor line = line_of(record);
    if (record.scheme) {
      line.loaded = scheme_text(record);
      line.bytes = record.size_bytes;
      add_note(line, choice_.of(record.name).why);
    } else {
      add_dense(record, role, line);
    }
    loaded_dtypes_.emplace_back(record.name, line.loaded);
    out_.report.tensors.push_back(std::move(line));
  }

  void add_dense(const TensorRecord& record, Role role, LoadedTensor& line) {
    const DtypeChoice::Chosen chosen = choice_.of(record.name);
    const Dtype recorded = record.original_dtype.value_or(record.scheme ? record.scale_dtype : record.stored_dtype);
    const Dtype wanted = models::loaded_dtype(chosen.policy, role, recorded, false);
    const auto width = static_cast<std::uint64_t>(size_bytes(wanted));
    line.loaded = name(wanted);
    line.bytes = value_count(record) * width;
    if (record.scheme || record.stored_dtype != wanted) {
      line.placement = Placement::kCast;
    } else if (width > 0 && checkpoint_.find(record.parts[Part::kCodes])->offset % width != 0) {
      line.placement = Placement::kCopied;
    }
    if (line.placement != Placement::kMapped) out_.read_to_cast_bytes += record.size_bytes;
    if (record.scheme) add_note(line, "dequantised from " + scheme_text(record));
    add_note(line, chosen.why);
  }

  static std::uint64_t value_count(const TensorRecord& record) {
    std::uint64_t count = 1;
    for (const std::int64_t size : record.shape) count *= static_cast<std::uint64_t>(size);
    return count;
  }

  void add_alias(const std::string& alias, const std::string& owner) {
    const auto found = std::ranges::find(loaded_dtypes_, owner, &std::pair<std::string, std::string>::first);
    if (found == loaded_dtypes_.end()) return;
    const TensorRecord& record = *checkpoint_.manifest.find(owner);
    LoadedTensor line = line_of(record);
    line.name = alias;
    line.operand = operand_of(alias, record);
    line.loaded = found->second;
    line.note = "tied to " + owner;
    out_.report.tensors.push_back(std::move(line));
  }

  void add_derived(const models::DerivedBuffer& buffer) {
    LoadedTensor line;
    line.name = buffer.name;
    line.is_buffer = true;
    line.recorded = buffer.original_dtype;
    const DtypeChoice::Chosen chosen = choice_.of(buffer.name);
    line.loaded = name(models::loaded_dtype(chosen.policy, Role::kBuffer, buffer.original_dtype, false));
    line.placement = Placement::kDerived;
    add_note(line, "tables are made in float32 and cast last");
    add_note(line, chosen.why);
    out_.report.tensors.push_back(std::move(line));
  }

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  DtypeChoice choice_;
  LoadCost out_;
  std::vector<std::pair<std::string, std::string>> loaded_dtypes_;  // owner -> what it became
};

}  // namespace

LoadCost load_cost(const Checkpoint& checkpoint, const LoadOptions& options) {
  check_patterns(checkpoint, options, tensor_names(checkpoint));
  return Estimate(checkpoint, options).run();
}

}  // namespace halfbyte::files
