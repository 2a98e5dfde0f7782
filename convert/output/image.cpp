#include "convert/output/image.h"

#include <algorithm>
#include <map>

#include <halfbyte/error.h>

#include "loader/files/hash.h"
#include "loader/files/parallel.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

class StoredBytes final : public files::TensorBytes {
 public:
  StoredBytes(std::shared_ptr<const files::DataFile> file, const files::StoredTensor& tensor)
      : file_(std::move(file)), offset_(tensor.offset), size_bytes_(tensor.size_bytes) {}
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  void read(std::uint64_t begin, std::span<std::byte> out) const override { file_->read(offset_ + begin, out); }

 private:
  std::shared_ptr<const files::DataFile> file_;
  std::uint64_t offset_;
  std::uint64_t size_bytes_;
};

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

struct Place {
  std::size_t file;
  std::uint64_t offset;
};

class Writer {
 public:
  Writer(const Image& image, const files::fs::path& directory, const ImageOptions& options)
      : image_(image), options_(options), progress_(options.progress, image.size_bytes) {
    for (std::size_t i = 0; i < image.files.size(); ++i) {
      const DataFileLayout& file = image.files[i];
      files_.push_back(std::make_unique<files::OutputFile>(directory / file.name, file.size_bytes));
      files_.back()->write(0, std::as_bytes(std::span(file.header)));
      for (const OutputTensor& tensor : file.tensors) places_.emplace(tensor.name, Place{i, tensor.offset});
    }
  }

  std::vector<std::string> run() {
    std::vector<std::string> hashes(image_.records.size());
    std::vector<std::uint64_t> sizes;
    for (const ImageRecord& record : image_.records) sizes.push_back(record.size_bytes());
    const std::vector<std::size_t> order = files::largest_first(sizes);
    files::parallel_for(order.size(), options_.threads, [&](std::size_t i) { hashes[order[i]] = write(order[i]); });
    for (const auto& file : files_) file->sync();
    return hashes;
  }

 private:
  std::string write(std::size_t record) {
    files::Hash128 hash;
    std::vector<std::byte> block;
    for (const ImageTensor& part : image_.records[record].parts) {
      const Place& place = places_.at(part.tensor.name);
      for (std::uint64_t at = 0; at < part.tensor.size_bytes; at += block.size()) {
        if (options_.stop.stop_requested())
          throw Error(ErrorCode::kInterrupted, "stopped; what was written has been removed");
        block.resize(std::min(kBlockBytes, part.tensor.size_bytes - at));
        part.bytes->read(at, block);
        hash.update(block);
        files_[place.file]->write(place.offset + at, block);
        progress_.add(block.size());
      }
    }
    return hash.hex();
  }

  const Image& image_;
  const ImageOptions& options_;
  files::SharedProgress progress_;
  std::vector<std::unique_ptr<files::OutputFile>> files_;
  std::map<std::string_view, Place> places_;  // by tensor
};

}  // namespace

std::uint64_t ImageRecord::size_bytes() const noexcept {
  std::uint64_t out = 0;
  for (const ImageTensor& part : parts) out += part.tensor.size_bytes;
  return out;
}

Image lay_out_image(std::vector<ImageRecord> records, std::uint64_t shard_size) {
  Image out;
  const auto by_file = shards(records, shard_size);
  for (std::size_t i = 0; i < by_file.size(); ++i) {
    std::vector<OutputTensor> tensors;
    for (const std::size_t record : by_file[i]) {
      for (const ImageTensor& part : records[record].parts) tensors.push_back(part.tensor);
    }
    // transformers asks for "format".
    out.files.push_back(lay_out(data_file_name(i, by_file.size()), std::move(tensors), {{"format", "pt"}}));
  }
  for (const ImageRecord& record : records) out.size_bytes += record.size_bytes();
  out.records = std::move(records);
  return out;
}

std::vector<std::string> write_image(const Image& image, const files::fs::path& directory,
                                     const ImageOptions& options) {
  return Writer(image, directory, options).run();
}

std::shared_ptr<const files::TensorBytes> stored_bytes(const files::Checkpoint& checkpoint,
                                                       const files::StoredTensor& tensor) {
  return std::make_shared<StoredBytes>(checkpoint.data_files[tensor.file], tensor);
}

}  // namespace halfbyte::convert
