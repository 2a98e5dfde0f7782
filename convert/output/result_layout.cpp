#include "convert/output/result_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "loader/files/packed_parts.h"
#include "loader/files/translation.h"

namespace halfbyte::convert {
namespace {

using files::StoredTensor;

void append_parts(const StoredTensor& tensor, const PlannedTensor& planned, std::vector<OutputTensor>& out) {
  if (!planned.tied_to.empty()) return;
  if (!planned.scheme) {
    out.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.size_bytes, 0});
    return;
  }
  const files::TensorRecord record = packed_record(tensor, planned);
  for (const files::PartSpec& spec : files::packed_parts(record)) {
    out.push_back(output_tensor(record.parts[spec.part], spec.dtype, spec.written_shape()));
  }
}

using TensorsOfFile = std::vector<OutputTensor>;

std::vector<TensorsOfFile> as_source(const files::Checkpoint& source, const Plan& plan) {
  std::vector<TensorsOfFile> out(source.data_files.size());
  for (const PlannedTensor& planned : plan.tensors) {
    const StoredTensor& tensor = source.tensors[planned.source];
    append_parts(tensor, planned, out[files::file_on_disk(source, tensor.file)]);
  }
  return out;
}

std::vector<TensorsOfFile> by_size(const files::Checkpoint& source, const Plan& plan, std::uint64_t shard_size) {
  std::vector<TensorsOfFile> out(1);
  std::uint64_t filled = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    TensorsOfFile parts;
    append_parts(source.tensors[planned.source], planned, parts);
    std::uint64_t size = 0;
    for (const OutputTensor& part : parts) size += part.size_bytes;
    if (filled > 0 && size > shard_size - std::min(filled, shard_size)) {
      out.emplace_back();
      filled = 0;
    }
    filled += size;
    std::ranges::move(parts, std::back_inserter(out.back()));
  }
  return out;
}

using PlaceOf = std::map<std::string_view, PartPlace>;

PlaceOf places_by_name(const ResultLayout& layout) {
  PlaceOf out;
  for (std::size_t file = 0; file < layout.files.size(); ++file) {
    for (const OutputTensor& tensor : layout.files[file].tensors)
      out[tensor.name] = {file, tensor.offset, tensor.size_bytes};
  }
  return out;
}

TensorPlaces places_of(const StoredTensor& tensor, const PlannedTensor& planned, const PlaceOf& by_name) {
  TensorPlaces out;
  if (!planned.tied_to.empty()) return out;
  files::TensorParts names;
  names[files::Part::kCodes] = tensor.name;
  if (planned.scheme) names = packed_record(tensor, planned).parts;
  for (std::size_t i = 0; i < files::kPartCount; ++i) {
    if (!names.names[i].empty()) out[i] = by_name.at(names.names[i]);
  }
  return out;
}

}  // namespace

ResultLayout lay_out(const files::Checkpoint& source, const Plan& plan, std::uint64_t shard_size) {
  std::vector<TensorsOfFile> by_file = shard_size > 0 ? by_size(source, plan, shard_size) : as_source(source, plan);
  std::erase_if(by_file, [](const TensorsOfFile& tensors) { return tensors.empty(); });
  if (by_file.empty()) by_file.emplace_back();  // a checkpoint without tensors is one empty file
  ResultLayout out;
  for (std::size_t i = 0; i < by_file.size(); ++i) {
    // transformers asks for "format".
    out.files.push_back(lay_out(data_file_name(i, by_file.size()), std::move(by_file[i]), {{"format", "pt"}}));
    out.size_bytes += out.files.back().size_bytes;
  }
  const PlaceOf by_name = places_by_name(out);
  for (const PlannedTensor& planned : plan.tensors) {
    out.places.push_back(places_of(source.tensors[planned.source], planned, by_name));
  }
  return out;
}

}  // namespace halfbyte::convert
