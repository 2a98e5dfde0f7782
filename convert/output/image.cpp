#include "convert/output/image.h"

#include <algorithm>
#include <map>
#include <utility>

#include "convert/output/data_files.h"
#include "convert/output/write_progress.h"
#include "loader/files/hash.h"
#include "loader/files/parallel.h"

namespace halfbyte::convert {
namespace {

// So many bytes are written between two looks at Ctrl-C, at most about.
constexpr std::uint64_t kTellBytes = std::uint64_t{1} << 19;

// Indices of records by the file they go to.
std::vector<std::vector<std::size_t>> shards(const std::vector<ImageRecord>& records, std::uint64_t shard_size) {
  std::vector<std::vector<std::size_t>> out(1);
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::uint64_t size = records[i].size_bytes();
    if (shard_size == 0) {
      if (out.size() <= records[i].source_file) out.resize(records[i].source_file + 1);
      out[records[i].source_file].push_back(i);
      continue;
    }
    if (filled > 0 && size > shard_size - std::min(filled, shard_size)) {
      out.emplace_back();
      filled = 0;
    }
    filled += size;
    out.back().push_back(i);
  }
  std::erase_if(out, [](const auto& shard) { return shard.empty(); });
  if (out.empty()) out.emplace_back();  // a checkpoint without tensors is one empty file
  return out;
}

// Adds what is written up before it is told.
class Tally {
 public:
  explicit Tally(WriteProgress& progress) : progress_(progress) {}
  void add(std::uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ >= kTellBytes) tell();
  }
  void tell() { progress_.add(std::exchange(bytes_, 0)); }

 private:
  WriteProgress& progress_;
  std::uint64_t bytes_ = 0;
};

// Pieces of one record that one thread writes.
struct Task {
  std::size_t record;
  std::size_t first, end;
};

class Writer {
 public:
  Writer(const Image& image, const files::fs::path& directory, const ImageOptions& options)
      : image_(image),
        options_(options),
        files_(directory, image.files),
        progress_(options.progress, image.size_bytes, options.stop) {}

  std::vector<std::string> run() {
    if (options_.is_hashed) hashes_.resize(image_.records.size());
    const std::vector<Task> tasks = options_.is_hashed ? whole_records() : single_pieces();
    files::parallel_for(tasks.size(), options_.threads, [&](std::size_t i) { write(tasks[i]); });
    files_.sync();
    return std::move(hashes_);
  }

 private:
  std::vector<Task> whole_records() const {
    std::vector<std::uint64_t> sizes;
    for (const ImageRecord& record : image_.records) sizes.push_back(record.size_bytes());
    std::vector<Task> out;
    for (const std::size_t i : files::largest_first(sizes)) out.push_back({i, 0, image_.records[i].source->pieces()});
    return out;
  }

  std::vector<Task> single_pieces() const {
    std::vector<Task> out;
    for (std::size_t i = 0; i < image_.records.size(); ++i) {
      const std::size_t pieces = image_.records[i].source->pieces();
      for (std::size_t piece = 0; piece < pieces; ++piece) out.push_back({i, piece, piece + 1});
    }
    return out;
  }

  void write(const Task& task) {
    const ImageRecord& record = image_.records[task.record];
    files::Hash128 hash;
    Tally tally(progress_);
    const auto put = [&](std::size_t part, std::uint64_t offset, std::span<const std::byte> bytes) {
      if (options_.is_hashed) hash.update(bytes);
      files_.write(record.places[part], offset, bytes);
      tally.add(bytes.size());
    };
    for (std::size_t piece = task.first; piece < task.end; ++piece) record.source->write(piece, put);
    tally.tell();
    if (options_.is_hashed) hashes_[task.record] = hash.hex();
  }

  const Image& image_;
  const ImageOptions& options_;
  DataFiles files_;
  WriteProgress progress_;
  std::vector<std::string> hashes_;  // by record
};

// From where the files have them.
void place_parts(Image& image) {
  std::map<std::string_view, PartPlace> places;
  for (std::size_t file = 0; file < image.files.size(); ++file) {
    for (const OutputTensor& tensor : image.files[file].tensors)
      places[tensor.name] = {file, tensor.offset, tensor.size_bytes};
  }
  for (ImageRecord& record : image.records) {
    for (const OutputTensor& part : record.parts) record.places.push_back(places.at(part.name));
  }
}

}  // namespace

std::uint64_t ImageRecord::size_bytes() const noexcept {
  std::uint64_t out = 0;
  for (const OutputTensor& part : parts) out += part.size_bytes;
  return out;
}

std::uint64_t Image::file_bytes() const noexcept {
  std::uint64_t out = 0;
  for (const DataFileLayout& file : files) out += file.size_bytes;
  return out;
}

Image lay_out_image(std::vector<ImageRecord> records, std::uint64_t shard_size) {
  Image out;
  const auto by_file = shards(records, shard_size);
  for (std::size_t i = 0; i < by_file.size(); ++i) {
    std::vector<OutputTensor> tensors;
    for (const std::size_t record : by_file[i]) {
      tensors.insert(tensors.end(), records[record].parts.begin(), records[record].parts.end());
    }
    // transformers asks for "format".
    out.files.push_back(lay_out(data_file_name(i, by_file.size()), std::move(tensors), {{"format", "pt"}}));
  }
  for (const ImageRecord& record : records) out.size_bytes += record.size_bytes();
  out.records = std::move(records);
  place_parts(out);
  return out;
}

std::vector<std::string> write_image(const Image& image, const files::fs::path& directory,
                                     const ImageOptions& options) {
  return Writer(image, directory, options).run();
}

}  // namespace halfbyte::convert
