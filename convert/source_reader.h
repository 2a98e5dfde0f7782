// First stage of a conversion: reads the source's files from front to back, in blocks, hashing them as they pass.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "convert/buffer.h"
#include "convert/channel.h"
#include "convert/tensor_result.h"
#include "loader/files/checkpoint.h"
#include "loader/files/hash.h"

namespace halfbyte::convert {

struct SourceBlock {
  std::size_t tensor;   // index into Checkpoint::tensors
  std::uint64_t begin;  // from the start of the tensor. Units: bytes.
  bool is_last;         // of its tensor; an empty tensor has one empty block
  Buffer buffer;
  std::string source_hash;  // FinishedTensor's; in the last block only
};

class SourceReader {
 public:
  // A block of tensor i has `block_bytes[i]` bytes (the last one of a tensor fewer). Of a tensor that is `finished`
  // no block is sent.
  SourceReader(const files::Checkpoint& source, std::span<const std::uint64_t> block_bytes,
               std::span<const std::optional<FinishedTensor>> finished);

  // Sends the blocks of all tensors in the order of Checkpoint::tensors, then closes `out`.
  // Errors: kInvalidArgument when the source is not the one from which the finished tensors were made.
  void run(Channel<Buffer>& free, Channel<SourceBlock>& out, std::stop_token stop);

  // Of each data file, whole; complete after run().
  const std::vector<std::string>& hashes() const noexcept { return hashes_; }

 private:
  void check_unchanged(std::size_t tensor, const files::Hash128& hash) const;
  bool send_tensor(std::size_t tensor, files::Hash128& hash, Channel<Buffer>& free, Channel<SourceBlock>& out,
                   const std::stop_token& stop);
  void hash_header(std::size_t file, files::Hash128& hash) const;

  const files::Checkpoint& source_;
  std::span<const std::uint64_t> block_bytes_;
  std::span<const std::optional<FinishedTensor>> finished_;
  bool is_larger_than_cache_;
  std::vector<std::string> hashes_;
};

}  // namespace halfbyte::convert
