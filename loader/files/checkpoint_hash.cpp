#include "loader/files/checkpoint_hash.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "loader/files/directory.h"
#include "loader/files/file_tree.h"
#include "loader/files/hash.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

std::string hash_of_start(const DataFile& file, std::uint64_t size) {
  Hash128 hash;
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    block.resize(std::min(kBlockBytes, size - at));
    file.read(at, block);
    hash.update(block);
  }
  return hash.hex();
}

template <class Json>
std::string line_of(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Names are JSON, so that none looks like two lines.
std::string quoted(const std::string& name) { return line_of(nlohmann::json(name)); }

std::string tensor_line(const TensorRecord& record, const std::string& hash) {
  const std::string_view stored = record.scheme ? record.scheme->name : name(record.stored_dtype);
  return "tensor " + quoted(record.name) + ' ' + std::string(stored) + ' ' + nlohmann::json(record.shape).dump() + ' ' +
         hash + '\n';
}

// The files that are hashed whole, by name.
std::vector<fs::path> whole_files(const Checkpoint& checkpoint) {
  std::vector<fs::path> out = checkpoint.side_files;
  if (checkpoint.has_config_file) out.emplace_back(kConfigFile);
  if (!checkpoint.manifest.is_derived) out.emplace_back(kManifestFile);
  std::ranges::sort(out);
  return out;
}

// Of each file on the disk that tensors come from, once.
std::string file_lines(const Checkpoint& checkpoint) {
  std::set<fs::path> paths;
  for (const auto& file : checkpoint.data_files) paths.insert(file->path());
  std::string out;
  for (const fs::path& path : paths)
    out += "file " + std::to_string(files::file_size(path)) + ' ' + std::to_string(changed_at(path)) + '\n';
  return out;
}

// By their names, and not by where they are.
std::string sample_lines(const Checkpoint& checkpoint) {
  std::set<fs::path> paths;
  for (const auto& file : checkpoint.data_files) paths.insert(file->path());
  std::set<std::string> lines;
  std::vector<std::byte> block;
  for (const fs::path& path : paths) {
    const InputFile file(path);
    const std::uint64_t size = file.size_bytes();
    block.resize(std::min(kBlockBytes, size));
    Hash128 hash;
    for (const std::uint64_t at : {std::uint64_t{0}, (size - block.size()) / 2, size - block.size()}) {
      file.read(at, block);
      hash.update(block);
    }
    lines.insert("file " + quoted(path.filename().string()) + ' ' + std::to_string(size) + ' ' + hash.hex() + '\n');
  }
  std::string out;
  for (const std::string& line : lines) out += line;
  return out;
}

// `of_files`: what their data are known by where hashes of them are not on record.
CheckpointIdentity identity_by(const Checkpoint& checkpoint, std::string (*of_files)(const Checkpoint& checkpoint)) {
  CheckpointIdentity out{{}, true};
  Hash128 hash;
  hash.update("halfbyte identity 1\n" + line_of(*checkpoint.config) + '\n');
  for (const TensorRecord& record : checkpoint.manifest.tensors) {
    out.knows_values = out.knows_values && !record.xxh3_128.empty();
    hash.update(tensor_line(record, record.xxh3_128));
  }
  for (const auto& [alias, owner] : checkpoint.manifest.ties)
    hash.update("tie " + quoted(alias) + ' ' + quoted(owner) + '\n');
  if (!out.knows_values) hash.update(of_files(checkpoint));
  out.hash = hash.hex();
  return out;
}

}  // namespace

CheckpointIdentity checkpoint_identity(const Checkpoint& checkpoint) { return identity_by(checkpoint, file_lines); }

std::string checkpoint_likeness(const Checkpoint& checkpoint) { return identity_by(checkpoint, sample_lines).hash; }

std::string checkpoint_hash(const Checkpoint& checkpoint, std::span<const std::string> tensor_hashes) {
  std::string text = "halfbyte checkpoint 1\n";
  for (std::size_t i = 0; i < tensor_hashes.size(); ++i)
    text += tensor_line(checkpoint.manifest.tensors[i], tensor_hashes[i]);
  for (std::size_t i = 0; i < checkpoint.data_files.size(); ++i) {
    const DataFile& file = *checkpoint.data_files[i];
    if (!file.is_on_disk()) continue;
    text += "header " + quoted(file.path().filename().string()) + ' ' +
            hash_of_start(file, checkpoint.data_offsets[i]) + '\n';
  }
  for (const fs::path& name : whole_files(checkpoint)) {
    const InputFile file(checkpoint.directory / name);
    text += "file " + quoted(name.string()) + ' ' + hash_of_start(file, file.size_bytes()) + '\n';
  }
  return hash_hex(text);
}

}  // namespace halfbyte::files
