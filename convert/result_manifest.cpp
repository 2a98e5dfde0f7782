#include "convert/result_manifest.h"

#include <algorithm>

#include "convert/provenance.h"
#include "loader/files/hash.h"

namespace halfbyte::convert {
namespace {

files::TensorRecord record(const files::Checkpoint& source, const PlannedTensor& planned, const TensorResult& result) {
  const files::StoredTensor& tensor = source.tensors[planned.source];
  files::TensorRecord out =
      *source.manifest.find(tensor.name);  // it is not quantised yet: its name is that of the file's
  if (planned.scheme) {
    set_packing(planned, out);
    out.nested_offset = result.nested_offset;
  }
  out.size_bytes = planned.bytes_after;
  out.xxh3_128 = result.xxh3_128;
  if (result.error) out.error = {result.error->rel_rmse(), result.error->max_abs};
  return out;
}

// Whether the tensors, in their order, are the file from where its data begin to its end, without holes or overlap.
bool is_read_whole(const files::Checkpoint& source, std::size_t file) {
  std::uint64_t end = source.data_offsets[file];
  for (const files::StoredTensor& tensor : source.tensors) {
    if (tensor.file != file || tensor.size_bytes == 0) continue;
    if (tensor.offset != end) return false;
    end += tensor.size_bytes;
  }
  return end == source.data_files[file]->size_bytes();
}

}  // namespace

files::Manifest result_manifest(const files::Checkpoint& source, const Plan& plan, const ConversionResult& result,
                                const Spelling& spelling) {
  files::Manifest out = source.manifest;  // what it says of ties, buffers and dtypes stays true
  out.is_derived = false;
  out.created_by = program_and_version();
  out.source_files.clear();
  for (std::size_t i = 0; i < source.data_files.size(); ++i) {
    const files::DataFile& file = *source.data_files[i];
    if (!file.is_on_disk()) continue;
    // Tensors that were translated passed in another layout, so the file's own bytes did not pass whole.
    const std::string hash = is_read_whole(source, i) ? result.source_hashes[i] : "";
    out.source_files.push_back({file.path().filename().string(), file.size_bytes(), hash});
  }
  out.tensors.clear();
  out.kept.clear();
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& planned = plan.tensors[i];
    const std::string& name = source.tensors[planned.source].name;
    if (!planned.tied_to.empty()) {
      out.ties.emplace_back(name, planned.tied_to);
      continue;
    }
    if (!planned.part_of.empty()) continue;
    out.tensors.push_back(record(source, planned, result.tensors[i]));
    if (!planned.scheme) out.kept[name] = planned.reason.str(spelling);
  }
  for (const files::TensorRecord& packed : source.manifest.tensors) {
    if (!packed.scheme) continue;
    out.tensors.push_back(packed);
    out.tensors.back().xxh3_128 = result.kept_hashes.at(packed.name);
  }
  std::ranges::sort(out.tensors, {}, &files::TensorRecord::name);
  std::ranges::sort(out.ties);
  return out;
}

std::vector<files::FileRecord> data_file_records(const ResultLayout& layout) {
  std::vector<files::FileRecord> out;
  for (const DataFileLayout& file : layout.files) {
    out.push_back({file.name, file.size_bytes, file.header.size(), files::hash_hex(file.header)});
  }
  return out;
}

}  // namespace halfbyte::convert
