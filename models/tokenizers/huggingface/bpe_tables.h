// The tables of byte pair encoding: which pairs merge, and the merging itself.
#pragma once

#include <cstdint>
#include <vector>

#include "models/tokenizers/huggingface/hash.h"
#include "models/tokenizers/huggingface/model.h"

namespace halfbyte::models::huggingface {

// Pairs of ids to a rank and the merged id.
class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = UINT32_MAX;
  struct Entry {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = kNoRank;
    std::uint32_t id = 0;
  };
  void reserve(std::size_t pairs);
  void set(std::uint32_t left, std::uint32_t right, std::uint32_t rank, std::uint32_t id);  // the last one counts
  // One with kNoRank when the pair does not merge.
  const Entry& find(std::uint32_t left, std::uint32_t right) const noexcept {
    const std::uint64_t pair = std::uint64_t{left} << 32 | right;
    std::size_t i = mixed(pair) & mask_;
    while (entries_[i].pair != pair && entries_[i].pair != kNoPair) i = (i + 1) & mask_;
    return entries_[i];
  }

 private:
  static constexpr std::uint64_t kNoPair = UINT64_MAX;
  std::vector<Entry> entries_ = std::vector<Entry>(2);
  std::size_t mask_ = 1;
};

class PairSet {
 public:
  void reserve(std::size_t pairs) { table_.reserve(pairs); }
  void add(std::uint32_t left, std::uint32_t right) { table_.set(left, right, 0, 0); }
  bool has(std::uint32_t left, std::uint32_t right) const noexcept {
    return table_.find(left, right).rank != MergeTable::kNoRank;
  }

 private:
  MergeTable table_;
};

// Merges symbols [first, first + count) of `space`; those that stay come to lie at `first`. Returns how many.
// `is_exact` follows the library's queue to the letter, which matters only when two spellings share an id.
std::size_t merge_symbols(const MergeTable& merges, Workspace& space, std::size_t first, std::size_t count,
                          bool is_exact);

}  // namespace halfbyte::models::huggingface
