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
};

class DataWriter {
 public:
  // Creates the files in `directory`, reserves their space and writes their headers.
  // Errors: kAlreadyExists, kIo, kNoResources.
  DataWriter(const files::fs::path& directory, const ResultLayout& layout);

  // Writes what comes until `in` is closed; gives each block's buffers to `recycle`.
  void run(Channel<ResultBlock>& in, const std::function<void(ResultBlock)>& recycle, std::stop_token stop);
  void sync();

  // Of each tensor, over its parts in the order of files::Part; complete after run().
  const std::vector<std::string>& hashes() const noexcept { return hashes_; }

 private:
  void write(const PartPlace& place, std::uint64_t begin, std::span<const std::byte> bytes);
  void finish(const ResultBlock& block);
  void hash_written(const PartPlace& place);

  const ResultLayout& layout_;
  std::vector<std::unique_ptr<files::OutputFile>> files_;
  std::vector<std::string> hashes_;
  files::Hash128 hash_;  // of the tensor that is being written: blocks come tensor by tensor
};

}  // namespace halfbyte::convert
