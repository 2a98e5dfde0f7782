#include "convert/source_reader.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kHeaderBlockBytes = std::uint64_t{1} << 20;

}  // namespace

SourceReader::SourceReader(const files::Checkpoint& source, std::span<const std::uint64_t> block_bytes,
                           std::span<const std::optional<FinishedTensor>> finished, const std::vector<bool>& share)
    : source_(source),
      block_bytes_(block_bytes),
      finished_(finished),
      share_(share),
      is_larger_than_cache_(source.size_bytes > files::memory_bytes() / 2) {}

std::optional<SourceBlock> SourceReader::next() {
  const std::lock_guard lock(mutex_);
  while (next_.tensor < source_.tensors.size() && is_skipped(next_.tensor)) ++next_.tensor;
  if (next_.tensor == source_.tensors.size()) return std::nullopt;
  const std::uint64_t total = source_.tensors[next_.tensor].size_bytes;
  next_.size = std::min(block_bytes_[next_.tensor], total - next_.begin);
  next_.is_last = next_.begin + next_.size == total;
  const SourceBlock out = next_;
  ++next_.number;
  next_.begin = out.is_last ? 0 : out.begin + out.size;
  if (out.is_last) ++next_.tensor;
  return out;
}

void SourceReader::read(const SourceBlock& block, std::span<std::byte> out) const {
  const files::StoredTensor& tensor = source_.tensors[block.tensor];
  const files::DataFile& file = *source_.data_files[tensor.file];
  file.read(tensor.offset + block.begin, out);
  // A source that does not fit into the page cache would only push other programs' files out of it.
  if (is_larger_than_cache_) file.drop_cache_behind(tensor.offset + block.begin, block.size);
}

void SourceReader::hash_header(std::size_t file) {
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < source_.data_offsets[file]; at += block.size()) {
    block.resize(std::min(kHeaderBlockBytes, source_.data_offsets[file] - at));
    source_.data_files[file]->read(at, block);
    hash_.update(block);
  }
}

// Ends what comes before it, files without tensors too. One beyond the last ends that.
void SourceReader::go_to_file(std::size_t file) {
  for (; begun_ <= file; ++begun_) {
    if (begun_ > 0) hashes_.push_back(hash_.hex());
    hash_.reset();
    if (begun_ < source_.data_files.size()) hash_header(begun_);
  }
}

// A share does not pass whole files; of what a share finished, whoever reads all of it checks that hash.
bool SourceReader::has_own_hash(std::size_t tensor) const {
  return !share_.empty() || (finished_[tensor] && finished_[tensor]->has_own_hash);
}

std::string SourceReader::hash(const SourceBlock& block, std::span<const std::byte> bytes) {
  if (share_.empty()) {
    go_to_file(source_.tensors[block.tensor].file);
    hash_.update(bytes);
  }
  const bool is_own = has_own_hash(block.tensor);
  if (is_own && block.begin == 0) tensor_hash_.reset();
  if (is_own) tensor_hash_.update(bytes);
  if (!block.is_last) return {};
  std::string out = is_own ? tensor_hash_.hex() : hash_.hex();
  if (finished_[block.tensor]) check_unchanged(block.tensor, out);
  return out;
}

std::vector<std::string> SourceReader::hashes() {
  if (!share_.empty()) return {};
  go_to_file(source_.data_files.size());
  return std::move(hashes_);
}

void SourceReader::check_unchanged(std::size_t tensor, const std::string& hash) const {
  if (hash == finished_[tensor]->source_hash) return;
  const files::StoredTensor& changed = source_.tensors[tensor];
  throw Error(ErrorCode::kInvalidArgument, files::printable_path(source_.data_files[changed.file]->path()) +
                                               " changed, before the end of tensor " + files::in_quotes(changed.name) +
                                               ", after a part of it was converted; " + Option::kRestart +
                                               " to delete it and begin anew");
}

}  // namespace halfbyte::convert
