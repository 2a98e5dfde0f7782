// A checkpoint that is quantised already, in any format that is read -> halfbyte's own: the same numbers, not quantised
// again.
#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/conversion.h"
#include "convert/file_notes.h"
#include "convert/output/destination.h"
#include "convert/output/finite_parts.h"
#include "convert/output/image.h"
#include "convert/output/small_files.h"
#include "convert/output/stored_parts.h"
#include "convert/provenance.h"
#include "convert/quantization_config.h"
#include "loader/files/directory.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"
#include "loader/files/translation.h"

namespace halfbyte::convert {
namespace {

using files::Checkpoint;
using files::TensorRecord;

Image image_of(const Checkpoint& source, std::uint64_t shard_size) {
  std::vector<ImageRecord> records;
  for (const TensorRecord& record : source.manifest.tensors) {
    ImageRecord& out = records.emplace_back();
    std::vector<std::shared_ptr<const files::TensorBytes>> bytes;
    for (const std::string& part : record.parts.names) {
      if (part.empty()) continue;
      const files::StoredTensor& stored = *source.find(part);
      out.source_file = files::file_on_disk(source, stored.file);
      out.parts.push_back(output_tensor(stored.name, stored.dtype, stored.shape));
      bytes.push_back(stored_bytes(source, stored));
    }
    out.source = stored_parts(std::move(bytes));
    check_finite_parts(source, record, out);
  }
  return lay_out_image(std::move(records), shard_size);
}

std::vector<Text> notes_of(const Checkpoint& source) {
  std::vector<Text> out = file_notes(source);
  if (const std::string obstacle = foreign_reader_obstacle(source, source.manifest.tensors); !obstacle.empty())
    out.push_back("only halfbyte can read the result, transformers and vLLM cannot: " + obstacle);
  const auto unknown = std::ranges::count_if(
      source.manifest.tensors, [](const TensorRecord& record) { return record.scheme && !record.original_dtype; });
  if (unknown > 0)
    out.push_back("the original dtype of " + std::to_string(unknown) +
                  " quantised tensors is not known, and recorded so");
  return out;
}

files::Manifest manifest_of(const Checkpoint& source, const Image& image, const std::vector<std::string>& hashes) {
  files::Manifest out = source.manifest;
  out.is_derived = false;
  out.created_by = program_and_version();
  out.conversion = nlohmann::json{{"repacked_from", source.kind}};
  out.files.clear();
  for (std::size_t i = 0; i < out.tensors.size(); ++i) {
    out.tensors[i].xxh3_128 = hashes[i];
    out.tensors[i].size_bytes = image.records[i].size_bytes();
    if (!out.tensors[i].scheme) out.kept.emplace(out.tensors[i].name, "as it was in the source");
  }
  for (const DataFileLayout& file : image.files)
    out.files.push_back({file.name, file.size_bytes, file.header.size(), files::hash_hex(file.header)});
  return out;
}

void write_small_files(const Checkpoint& source, const Image& image, files::Manifest manifest,
                       const Destination& destination) {
  SmallFiles out(source, destination);
  out.write_index(image.files);
  if (source.has_config()) {
    nlohmann::ordered_json config = *source.config;
    config["quantization_config"] = quantization_config(source, source.manifest.tensors);
    out.write(files::kConfigFile, config.dump(2) + "\n");
  }
  for (const fs::path& name : source.side_files) {
    if (!is_quantization_file(name)) out.copy(name);
  }
  out.write_generated();
  manifest.files.insert(manifest.files.end(), out.records().begin(), out.records().end());
  destination.write_file(files::kManifestFile, files::manifest_to_json(manifest));
}

QuantizeSummary summary_of(const Checkpoint& source, const Repacking& work) {
  QuantizeSummary out;
  out.source_bytes = source.size_bytes;
  out.result_bytes = work.image.size_bytes;
  out.notes = work.notes;
  for (const TensorRecord& record : source.manifest.tensors)
    ++(record.scheme ? out.quantized_tensors : out.kept_tensors);
  return out;
}

}  // namespace

Repacking repacking_of(const Checkpoint& source, std::uint64_t shard_size) {
  return {image_of(source, shard_size), notes_of(source)};
}

QuantizeSummary run_repacking(const Conversion& conversion, const Repacking& work, const fs::path& path) {
  const Checkpoint& source = *conversion.source;
  const QuantizeOptions& options = conversion.options;
  Destination destination(path, {.overwrite = options.overwrite, .keep_leftovers = options.restart});
  if (options.restart) destination.start_over();
  destination.check_space(work.image.file_bytes() + small_file_bytes(source));
  destination.fill([&] {
    const std::vector<std::string> hashes = write_image(
        work.image, destination.partial_path(),
        {.threads = options.threads, .is_hashed = true, .progress = options.progress, .stop = options.stop});
    write_small_files(source, work.image, manifest_of(source, work.image, hashes), destination);
  });
  QuantizeSummary out = summary_of(source, work);
  out.warnings = destination.warnings();
  return out;
}

}  // namespace halfbyte::convert
