// Last step of a conversion: writes blocks to the places that the layout gives them, and hashes each tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/output/data_files.h"
#include "convert/output/journal.h"
#include "convert/output/result_layout.h"
#include "convert/output/write_behind.h"
#include "loader/files/hash.h"

namespace halfbyte::convert {

// A part that comes whole. Its place holds so many bytes.
struct SmallPart {
  files::Part part;
  std::vector<std::byte> bytes;
};

// Part of a tensor, ready to be written. A kept tensor's bytes are its codes.
struct ResultBlock {
  std::size_t tensor;             // index into ResultLayout::places
  std::uint64_t codes_begin = 0;  // from the start of the part. Units: bytes.
  std::uint64_t scale_begin = 0;
  bool is_packed = false;
  std::span<const std::byte> codes = {};
  std::span<const std::byte> scale = {};  // packed only
};

class DataWriter {
 public:
  // Creates the files in `directory`, or goes on with those that are there, reserves their space and writes their
  // headers. Errors: kIo, kNoResources.
  DataWriter(const files::fs::path& directory, const ResultLayout& layout, Journal& journal);

  // Whether the tensor's bytes are in the files and have this hash.
  bool holds(std::size_t tensor, const std::string& xxh3_128);
  // A tensor's blocks come in order, and tensor by tensor.
  void write(const ResultBlock& block);
  // After the last block of a tensor: writes its other parts, completes `finished` with the hash of all, and puts it
  // into the journal.
  void finish(std::size_t tensor, const std::vector<SmallPart>& rest, FinishedTensor finished);
  void sync();

  // Of each tensor that was written; complete when all are finished.
  const std::vector<TensorResult>& results() const noexcept { return results_; }

 private:
  void hash_written(const PartPlace& place);

  const ResultLayout& layout_;
  Journal& journal_;
  DataFiles files_;
  std::vector<TensorResult> results_;
  files::Hash128 hash_;  // of the tensor that is being written
  WriteBehind write_behind_;
};

}  // namespace halfbyte::convert
