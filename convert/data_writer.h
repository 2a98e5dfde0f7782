// Last stage of a conversion: writes blocks to the places that the layout gives them, and hashes each tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "convert/buffer.h"
#include "convert/channel.h"
#include "convert/journal.h"
#include "convert/result_layout.h"
#include "loader/files/hash.h"

namespace halfbyte::convert {

// A part that comes whole. Its place holds so many bytes.
struct SmallPart {
  files::Part part;
  std::vector<std::byte> bytes;
};

// Part of a tensor, ready to be written. A kept tensor's bytes are its codes.
struct ResultBlock {
  std::size_t tensor;         // index into ResultLayout::places
  std::uint64_t codes_begin;  // from the start of the part. Units: bytes.
  std::uint64_t scale_begin;
  bool is_last;
  bool is_packed;
  Buffer codes;
  Buffer scale;                 // packed only
  std::vector<SmallPart> rest;  // with the last block of a packed tensor: every other part
  FinishedTensor finished;      // with the last block; without its xxh3_128, which the writer takes
};

class DataWriter {
 public:
  // Creates the files in `directory`, or goes on with those that are there, reserves their space and writes their
  // headers. Errors: kIo, kNoResources.
  DataWriter(files::fs::path directory, const ResultLayout& layout, Journal& journal);

  // Whether the tensor's bytes are in the files and have this hash.
  bool holds(std::size_t tensor, const std::string& xxh3_128);
  // Writes what comes until `in` is closed; gives each block's buffers to `recycle`; puts what it finishes into the
  // journal.
  void run(Channel<ResultBlock>& in, const std::function<void(ResultBlock)>& recycle, const std::stop_token& stop);
  void sync();

  // Of each tensor that was written; complete after run().
  const std::vector<TensorResult>& results() const noexcept { return results_; }

 private:
  void write(const PartPlace& place, std::uint64_t begin, std::span<const std::byte> bytes);
  files::OutputFile& file(std::size_t index);
  void finish(ResultBlock& block);
  void hash_written(const PartPlace& place);

  const ResultLayout& layout_;
  Journal& journal_;
  files::fs::path directory_;
  // One is open at a time: tensors come file by file, and there may be more files than a process may open.
  std::unique_ptr<files::OutputFile> open_;
  std::size_t open_index_ = 0;
  std::vector<TensorResult> results_;
  files::Hash128 hash_;  // of the tensor that is being written: blocks come tensor by tensor
};

}  // namespace halfbyte::convert
