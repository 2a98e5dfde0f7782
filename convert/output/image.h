// Data files made of records that are written piece by piece, on all threads: what repacking, exporting and
// dequantising share.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "convert/output/data_file_layout.h"
#include "loader/files/platform.h"

namespace halfbyte::convert {

// Bytes at `offset` of the part of that index.
using WritePart = std::function<void(std::size_t part, std::uint64_t offset, std::span<const std::byte> bytes)>;

// What the parts of one record are made of, in pieces that need nothing of one another.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::size_t pieces() const = 0;
  // Writes a piece, to whichever parts it gives something; together the pieces fill all parts. Thread-safe.
  virtual void write(std::size_t piece, const WritePart& write) const = 0;
};

// Tensors that belong together: they stay in one file.
struct ImageRecord {
  std::vector<OutputTensor> parts;
  std::shared_ptr<const ImageSource> source;
  std::size_t source_file = 0;         // by which the result is sharded
  std::vector<PartPlace> places = {};  // one for each part

  std::uint64_t size_bytes() const noexcept;
};

struct Image {
  std::vector<ImageRecord> records;
  std::vector<DataFileLayout> files;
  std::uint64_t size_bytes = 0;  // of tensors

  std::uint64_t file_bytes() const noexcept;  // headers included
};

// Lays the records out in safetensors files of at most `shard_size` bytes of tensors, in their order; 0: as
// `source_file` says. A file that would hold nothing is left out.
Image lay_out_image(std::vector<ImageRecord> records, std::uint64_t shard_size);

struct ImageOptions {
  int threads = 0;         // 0: one a core
  bool is_hashed = false;  // a record is written by one thread then, and its pieces come in the order of its parts
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};
};

// Writes and syncs the data files in `directory` (a file without a name is `directory` itself). Returns the XXH3-128 of
// each record, as digits, where they are asked for. Errors: kIo, kNoResources, kInterrupted, and what the sources give.
std::vector<std::string> write_image(const Image& image, const files::fs::path& directory, const ImageOptions& options);

}  // namespace halfbyte::convert
