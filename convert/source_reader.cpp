#include "convert/source_reader.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kHeaderBlockBytes = std::uint64_t{1} << 20;

}  // namespace

SourceReader::SourceReader(const files::Checkpoint& source, std::span<const std::uint64_t> block_bytes,
                           std::span<const std::optional<FinishedTensor>> finished)
    : source_(source),
      block_bytes_(block_bytes),
      finished_(finished),
      is_larger_than_cache_(source.size_bytes > files::memory_bytes() / 2) {}

void SourceReader::hash_header(std::size_t file, files::Hash128& hash) const {
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < source_.data_offsets[file]; at += block.size()) {
    block.resize(std::min(kHeaderBlockBytes, source_.data_offsets[file] - at));
    source_.data_files[file]->read(at, block);
    hash.update(block);
  }
}

void SourceReader::check_unchanged(std::size_t tensor, const files::Hash128& hash) const {
  if (hash.hex() == finished_[tensor]->source_hash) return;
  const files::StoredTensor& changed = source_.tensors[tensor];
  throw Error(ErrorCode::kInvalidArgument, files::printable_path(source_.data_files[changed.file]->path()) +
                                               " changed, before the end of tensor " + files::in_quotes(changed.name) +
                                               ", after a part of it was converted; leave out --resume to start over");
}

bool SourceReader::send_tensor(std::size_t index, files::Hash128& hash, Channel<Buffer>& free,
                               Channel<SourceBlock>& out, const std::stop_token& stop) {
  const files::StoredTensor& tensor = source_.tensors[index];
  const files::InputFile& file = *source_.data_files[tensor.file];
  std::uint64_t at = 0;
  do {
    auto buffer = free.pop(stop);
    if (!buffer) return false;
    const std::uint64_t size = std::min(block_bytes_[index], tensor.size_bytes - at);
    const auto bytes = buffer->resize(size);
    file.read(tensor.offset + at, bytes);
    // A source that does not fit into the page cache would only push other programs' files out of it.
    if (is_larger_than_cache_) file.drop_cache_behind(tensor.offset + at, size);
    hash.update(bytes);
    const bool is_last = at + size == tensor.size_bytes;
    SourceBlock block{index, at, is_last, std::move(*buffer), is_last ? hash.hex() : std::string()};
    // The push back never waits: there is room for every buffer.
    if (finished_[index] ? !free.push(std::move(block.buffer), stop) : !out.push(std::move(block), stop)) return false;
    at += size;
  } while (at < tensor.size_bytes);
  if (finished_[index]) check_unchanged(index, hash);
  return true;
}

void SourceReader::run(Channel<Buffer>& free, Channel<SourceBlock>& out, std::stop_token stop) {
  std::size_t tensor = 0;
  for (std::size_t file = 0; file < source_.data_files.size(); ++file) {
    files::Hash128 hash;
    hash_header(file, hash);
    for (; tensor < source_.tensors.size() && source_.tensors[tensor].file == file; ++tensor) {
      if (!send_tensor(tensor, hash, free, out, stop)) return;
    }
    hashes_.push_back(hash.hex());
  }
  out.close();
}

}  // namespace halfbyte::convert
