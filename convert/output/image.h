// A safetensors checkpoint made of tensors that can be read as they will be written: what repacking and exporting
// share.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "convert/output/data_file_layout.h"
#include "loader/files/checkpoint.h"
#include "loader/files/translated_file.h"

namespace halfbyte::convert {

// A tensor of the result and where its bytes come from.
struct ImageTensor {
  OutputTensor tensor;
  std::shared_ptr<const files::TensorBytes> bytes;
};

// Tensors that belong together: they stay in one file and are hashed one after another.
struct ImageRecord {
  std::vector<ImageTensor> parts;
  std::size_t source_file = 0;  // by which the result is sharded

  std::uint64_t size_bytes() const noexcept;
};

struct Image {
  std::vector<ImageRecord> records;
  std::vector<DataFileLayout> files;
  std::uint64_t size_bytes = 0;  // of tensors
};

// Lays the records out: in files of at most `shard_size` bytes of tensors, in their order; 0: as `source_file` says.
Image lay_out_image(std::vector<ImageRecord> records, std::uint64_t shard_size);

struct ImageOptions {
  int threads = 0;  // 0: one a core
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};
};

// Writes and syncs the data files. Returns the XXH3-128 of each record, as digits. Errors: kIo, kNoResources,
// kInterrupted, and what reading the source gives.
std::vector<std::string> write_image(const Image& image, const files::fs::path& directory, const ImageOptions& options);

// A tensor of a checkpoint as it is stored, or translated.
std::shared_ptr<const files::TensorBytes> stored_bytes(const files::Checkpoint& checkpoint,
                                                       const files::StoredTensor& tensor);

}  // namespace halfbyte::convert
