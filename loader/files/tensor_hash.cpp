#include "loader/files/tensor_hash.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/hash.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
constexpr const char* kConfigFile = "config.json";

void update(Hash128& hash, const DataFile& file, std::uint64_t begin, std::uint64_t size) {
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    block.resize(std::min(kBlockBytes, size - at));
    file.read(begin + at, block);
    hash.update(block);
  }
}

void compare(const Hash128& hash, const std::string& recorded, const Checkpoint& checkpoint, const std::string& what) {
  if (hash.hex() == recorded) return;
  throw Error(ErrorCode::kCorrupt, printable_path(checkpoint.directory) + ": " + what +
                                       ": its bytes are not those that were written (hash " + hash.hex() +
                                       ", on record " + recorded + "); copy the checkpoint again");
}

}  // namespace

bool check_tensor_hash(const Checkpoint& checkpoint, const TensorRecord& record) {
  if (record.xxh3_128.empty()) return false;
  Hash128 hash;
  for (const std::string& name : record.parts.names) {
    if (name.empty()) continue;
    const StoredTensor& part = *checkpoint.find(name);
    update(hash, *checkpoint.data_files[part.file], part.offset, part.size_bytes);
  }
  compare(hash, record.xxh3_128, checkpoint, "tensor " + in_quotes(record.name));
  return true;
}

bool check_config_hash(const Checkpoint& checkpoint) {
  const auto& records = checkpoint.manifest.files;
  const auto record = std::ranges::find(records, kConfigFile, &FileRecord::name);
  if (record == records.end() || record->xxh3_128.empty()) return false;
  const InputFile file(checkpoint.directory / kConfigFile);
  Hash128 hash;
  update(hash, file, 0, std::min(record->hashed_bytes, file.size_bytes()));
  compare(hash, record->xxh3_128, checkpoint, kConfigFile);
  return true;
}

}  // namespace halfbyte::files
