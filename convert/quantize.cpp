#include <algorithm>
#include <chrono>

#include <halfbyte/convert.h>

#include "convert/convert_tensors.h"
#include "convert/destination.h"
#include "convert/quantization_config.h"
#include "convert/result_manifest.h"
#include "convert/tied_duplicates.h"
#include "loader/files/directory.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

// For config.json, the index and the manifest when the disk is asked for room. Units: bytes.
constexpr std::uint64_t kRoomForSmallFiles = 4'000'000;
constexpr std::uint64_t kCopyBlockBytes = std::uint64_t{4} << 20;

// Writes the files beside the data and records each.
class SmallFiles {
 public:
  SmallFiles(const files::Checkpoint& source, const Destination& destination, std::vector<files::FileRecord>& records)
      : source_(source), destination_(destination), records_(records) {}

  void write(const char* name, const std::string& text) {
    destination_.write_file(name, text);
    records_.push_back({name, text.size(), text.size(), files::hash_hex(text)});
  }

  void copy(const fs::path& name) {
    const files::InputFile from(source_.directory / name);
    files::OutputFile to(destination_.partial_path() / name, from.size_bytes());
    files::Hash128 hash;
    std::vector<std::byte> block;
    for (std::uint64_t at = 0; at < from.size_bytes(); at += block.size()) {
      block.resize(std::min(kCopyBlockBytes, from.size_bytes() - at));
      from.read(at, block);
      to.write(at, block);
      hash.update(block);
    }
    to.sync();
    records_.push_back({name.string(), from.size_bytes(), from.size_bytes(), hash.hex()});
  }

 private:
  const files::Checkpoint& source_;
  const Destination& destination_;
  std::vector<files::FileRecord>& records_;
};

void write_config(const files::Checkpoint& source, const Plan& plan, SmallFiles& out) {
  if (source.config.is_null()) return;
  nlohmann::ordered_json quantization = quantization_config(source, plan);
  if (quantization.is_null()) return out.copy(files::kConfigFile);
  nlohmann::ordered_json config = source.config;
  config["quantization_config"] = std::move(quantization);
  out.write(files::kConfigFile, config.dump(2) + "\n");
}

std::uint64_t needed_bytes(const files::Checkpoint& source, const ResultLayout& layout) {
  std::uint64_t total = layout.size_bytes + kRoomForSmallFiles;
  for (const fs::path& name : source.side_files) total += fs::file_size(source.directory / name);
  return total;
}

void write_small_files(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                       const ConversionResult& result, const Destination& destination) {
  files::Manifest manifest = result_manifest(source, plan, result);
  manifest.files = data_file_records(layout);
  SmallFiles out(source, destination, manifest.files);
  if (layout.files.size() > 1) out.write(files::kIndexFile, index_text(layout.files));
  write_config(source, plan, out);
  for (const fs::path& name : source.side_files) out.copy(name);
  destination.write_file(files::kManifestFile, files::manifest_to_json(manifest));
}

QuantizeSummary summary_of(const files::Checkpoint& source, const Plan& plan, const ConversionResult& result) {
  QuantizeSummary out;
  out.source_bytes = source.size_bytes;
  out.result_bytes = plan.bytes_after;
  out.notes = plan.notes;
  quant::ErrorStats total;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    ++(plan.tensors[i].scheme ? out.quantized_tensors : out.kept_tensors);
    if (result.tensors[i].error) total.add(*result.tensors[i].error);
  }
  out.rel_rmse = total.rel_rmse();
  return out;
}

}  // namespace

QuantizeSummary quantize(const fs::path& source_path, const fs::path& destination_path,
                         const QuantizeOptions& options) try {
  const auto start = std::chrono::steady_clock::now();
  if (options.threads < 0)
    throw Error(ErrorCode::kInvalidArgument, "threads: " + std::to_string(options.threads) + " is negative");
  const files::Checkpoint source = files::open_checkpoint(source_path);
  check_apart(source_path, destination_path);
  const Plan planned = plan(source, options);
  const ResultLayout layout = lay_out(source, planned);
  check_tied_duplicates(source, planned);
  Destination destination(destination_path, options.overwrite);
  destination.check_space(needed_bytes(source, layout));
  const ConversionResult result = convert_tensors(source, planned, layout, options, destination.partial_path());
  write_small_files(source, planned, layout, result, destination);
  destination.commit();
  QuantizeSummary summary = summary_of(source, planned, result);
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
} catch (const fs::filesystem_error& error) {
  throw Error(error.code() == std::errc::no_space_on_device ? ErrorCode::kNoResources : ErrorCode::kIo,
              files::printable(error.what(), 1024));
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::kNoResources, "out of memory while converting " + files::printable_path(source_path));
}

}  // namespace halfbyte::convert
