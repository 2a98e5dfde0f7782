#include "loader/report_lines.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/checkpoint_hash.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/scale_reader.h"
#include "models/dtype_rules.h"
#include "quant/kernels/cpu_products.h"

namespace halfbyte {

using files::TensorRecord;
using models::Role;

LoadReport begin_report(const files::Checkpoint& checkpoint, const DtypePolicy& policy) {
  LoadReport report;
  report.notes = checkpoint.notes;
  report.policy = policy.name();
  report.operand_dtype = dtype_text(policy.operand());
  report.stream_dtype = dtype_text(policy.stream());
  report.is_manifest_derived = checkpoint.manifest.is_derived;
  const files::CheckpointIdentity identity = files::checkpoint_identity(checkpoint);
  report.identity = identity.hash;
  report.identity_has_values = identity.knows_values;
  if (report.is_manifest_derived)
    report.notes.emplace_back("no halfbyte.json: dtypes were taken from the tensors and config.json");
  return report;
}

std::string owner_of(const files::Checkpoint& checkpoint, const std::string& name) {
  const auto& ties = checkpoint.manifest.ties;
  const auto tie = std::ranges::find(ties, name, &std::pair<std::string, std::string>::first);
  return tie == ties.end() ? name : tie->second;
}

const TensorRecord& record_of(const files::Checkpoint& checkpoint, const std::string& name) {
  if (const TensorRecord* found = checkpoint.manifest.find(owner_of(checkpoint, name))) return *found;
  throw Error(ErrorCode::kCorrupt, checkpoint.directory.string() + ": tensor " + name + " is missing");
}

Dtype recorded_dtype(const TensorRecord& record) {
  if (record.original_dtype) return *record.original_dtype;
  if (!record.scheme) return record.stored_dtype;
  return files::has_plain_scales(record) ? record.scale_dtype : Dtype::kFloat32;
}

std::string storage_of(const TensorRecord& record) {
  return record.scheme ? packed_description(*record.scheme, record.shape.back(), record.group_size)
                       : std::string(halfbyte::name(record.stored_dtype));
}

std::string translation_note(const files::Checkpoint& checkpoint, const TensorRecord& record) {
  const bool is_translated = std::ranges::any_of(record.parts.names, [&](const std::string& part) {
    const files::StoredTensor* stored = part.empty() ? nullptr : checkpoint.find(part);
    return stored && files::is_translated(checkpoint, *stored);
  });
  return is_translated ? "translated from " + checkpoint.kind : "";
}

LoadedTensor line_of(const std::string& name, const TensorRecord& record) {
  LoadedTensor line;
  line.name = name;
  line.is_buffer = record.is_buffer;
  line.recorded = record.original_dtype;
  return line;
}

LoadedTensor packed_line(const files::Checkpoint& checkpoint, const DtypeChoice& choice, const std::string& name) {
  const TensorRecord& record = record_of(checkpoint, name);
  const std::string translated = translation_note(checkpoint, record);
  LoadedTensor line = line_of(name, record);
  line.loaded = storage_of(record);
  if (!translated.empty()) line.placement = Placement::kCopied;
  if (record.name != name) {
    line.note = "tied to " + record.name;
    return line;
  }
  add_note(line, translated);
  line.bytes = record.size_bytes;
  if (!files::has_plain_scales(record) && record.scheme->scale_bits != 8) {
    const bool are_bytes = has_row_scales(*record.scheme);
    const auto [rows, columns] = files::matrix_shape(record.shape);
    const std::int64_t groups = rows * (columns / record.group_size);
    line.bytes += static_cast<std::uint64_t>(groups * size_bytes(are_bytes ? Dtype::kInt8 : Dtype::kFloat32));
    add_note(line, are_bytes ? "scales expanded to bytes" : "nested scales expanded to float32");
  }
  add_note(line, choice.of(name).why);
  return line;
}

Dtype note_derived_buffer(const files::Checkpoint& checkpoint, const DtypeChoice& choice, const std::string& name,
                          LoadReport& report) {
  const auto& buffers = checkpoint.manifest.buffers;
  const auto buffer = std::ranges::find(buffers, name, &models::DerivedBuffer::name);
  const TensorRecord* stored = checkpoint.manifest.find(name);
  const Dtype derived = buffer == buffers.end() ? Dtype::kFloat32 : buffer->original_dtype;
  const Dtype recorded = stored ? recorded_dtype(*stored) : derived;
  const DtypeChoice::Chosen chosen = choice.of(name);
  const Dtype wanted = models::loaded_dtype(chosen.policy, Role::kBuffer, recorded, false);
  LoadedTensor line{name, true, recorded, std::string(halfbyte::name(wanted)), 0, Placement::kDerived, {}};
  add_note(line, "tables are made in float32 and cast last");
  add_note(line, chosen.why);
  report.tensors.push_back(std::move(line));
  return wanted;
}

void note_unused_buffers(const files::Checkpoint& checkpoint, LoadReport& report) {
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
    if (models::role_of(checkpoint.architecture, tensor.name, tensor.shape) != Role::kBuffer) continue;
    report.notes.push_back(tensor.name + " is stored, but this family derives it: the stored values are not used");
  }
}

void note_text_part(const models::ModelConfig& config, LoadReport& report) {
  if (config.is_text_part)
    report.notes.emplace_back(
        "this model sees or hears too: its text part answers, to text alone; the rest is kept as "
        "it is");
}

namespace {

// Under original() it is the tensors that say.
bool has_products(Dtype dtype, const DtypePolicy& policy, const LoadReport& report) {
  return std::ranges::any_of(report.tensors, [&](const LoadedTensor& tensor) {
    return tensor.operand == name(dtype) ||
           (policy.is_original() && (tensor.recorded == dtype || tensor.loaded == name(dtype)));
  });
}

}  // namespace

void note_products(const DtypePolicy& policy, LoadReport& report) {
  const std::string float16 = quant::lacking_products(Dtype::kFloat16);
  const std::string bfloat16 = quant::lacking_products(Dtype::kBfloat16);
  if (has_products(Dtype::kFloat16, policy, report)) {
    report.notes.push_back("float16 products are computed in float32 registers" +
                           (float16.empty() ? "" : ": this CPU lacks " + float16));
  }
  if (has_products(Dtype::kBfloat16, policy, report) && !bfloat16.empty()) {
    report.notes.push_back("bfloat16 products are computed in float32 registers: this CPU lacks " + bfloat16);
  }
}

}  // namespace halfbyte
