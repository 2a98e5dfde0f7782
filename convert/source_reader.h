// First step of a conversion: the source's files from front to back, in blocks, hashed as they pass.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/tensor_result.h"
#include "loader/files/checkpoint.h"
#include "loader/files/hash.h"

namespace halfbyte::convert {

// Part of a tensor. Units: bytes.
struct SourceBlock {
  std::uint64_t number;  // from 0 on, in the order of Checkpoint::tensors
  std::size_t tensor;    // index into Checkpoint::tensors
  std::uint64_t begin;   // from the start of the tensor
  std::uint64_t size;
  bool is_last;  // of its tensor; an empty tensor has one empty block
};

class SourceReader {
 public:
  // A block of tensor i has `block_bytes[i]` bytes (the last one of a tensor fewer). What is `finished` is hashed like
  // the rest, to know that it still is what it was. Of a `share` what is finished, and what is another's, is not read.
  SourceReader(const files::Checkpoint& source, std::span<const std::uint64_t> block_bytes,
               std::span<const std::optional<FinishedTensor>> finished, const std::vector<bool>& share);

  // The next block, or nothing after the last. Thread-safe.
  std::optional<SourceBlock> next();
  // Thread-safe. Shape: out (block.size). Errors: kIo, kCorrupt.
  void read(const SourceBlock& block, std::span<std::byte> out) const;
  // The bytes of one block after another, in the order of their numbers. With the last block of a tensor it returns
  // FinishedTensor's source_hash. Errors: kInvalidArgument when the source is not the one from which the finished
  // tensors were made.
  std::string hash(const SourceBlock& block, std::span<const std::byte> bytes);
  // Of each data file, whole; after the last block. Of a share none.
  std::vector<std::string> hashes();

 private:
  bool is_skipped(std::size_t tensor) const { return !share_.empty() && (!share_[tensor] || finished_[tensor]); }
  bool has_own_hash(std::size_t tensor) const;
  void check_unchanged(std::size_t tensor, const std::string& hash) const;
  void go_to_file(std::size_t file);
  void hash_header(std::size_t file);

  const files::Checkpoint& source_;
  std::span<const std::uint64_t> block_bytes_;
  std::span<const std::optional<FinishedTensor>> finished_;
  const std::vector<bool>& share_;  // empty: all
  bool is_larger_than_cache_;
  std::mutex mutex_;  // of next_
  SourceBlock next_{};
  files::Hash128 hash_;         // of the file that is being read
  files::Hash128 tensor_hash_;  // of the tensor, where it has a hash of its own
  std::vector<std::string> hashes_;
  std::size_t begun_ = 0;  // files whose header was hashed
};

}  // namespace halfbyte::convert
