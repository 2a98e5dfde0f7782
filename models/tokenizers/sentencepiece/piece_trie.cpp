#include "models/tokenizers/sentencepiece/piece_trie.h"

#include <algorithm>

namespace halfbyte::models::sentencepiece {
namespace {

struct Range {
  std::size_t begin;
  std::size_t end;
  std::size_t depth;
};

}  // namespace

// Breadth first over the sorted strings: those of a node are a range of them.
PieceTrie::PieceTrie(std::vector<Entry> entries) {
  first_bytes_.fill(kNone);
  if (entries.empty()) return;
  std::ranges::stable_sort(entries, {}, &Entry::first);
  std::vector<Range> ranges = {{0, entries.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && entries[begin].first.size() == depth; ++begin) {
      if (nodes_[node].number < 0) nodes_[node].number = entries[begin].second;
    }
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].first[depth];
      std::size_t after = begin;
      while (after < end && entries[after].first[depth] == byte) ++after;
      ++nodes_[node].children;
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ranges.push_back({begin, after, depth + 1});
      begin = after;
    }
  }
  const Node& root = nodes_[kRoot];
  for (std::uint32_t i = 0; i < root.children; ++i)
    first_bytes_[nodes_[root.first_child + i].byte] = root.first_child + i;
}

std::uint32_t PieceTrie::step(std::uint32_t node, unsigned char byte) const noexcept {
  if (node == kRoot) return first_bytes_[byte];
  std::uint32_t low = nodes_[node].first_child;
  std::uint32_t high = low + nodes_[node].children;
  while (high - low > 8) {
    const std::uint32_t middle = low + (high - low) / 2;
    (nodes_[middle].byte <= byte ? low : high) = middle;
  }
  for (; low < high; ++low) {
    if (nodes_[low].byte == byte) return low;
  }
  return kNone;
}

PieceTrie::Match PieceTrie::longest(std::string_view text) const noexcept {
  Match match;
  if (empty()) return match;
  std::uint32_t node = kRoot;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = step(node, static_cast<unsigned char>(text[i]));
    if (node == kNone) break;
    if (number(node) >= 0) match = {i + 1, number(node)};
  }
  return match;
}

}  // namespace halfbyte::models::sentencepiece
