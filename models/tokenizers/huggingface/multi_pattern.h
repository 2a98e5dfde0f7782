// Finds many strings in a text at once: at each place the longest that begins there.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models::huggingface {

// Source: Aho and Corasick, 1975, run from right to left: a state is then the longest beginning of a pattern that
// stands at a place. Time is linear in the text whatever the patterns are.
class MultiPattern {
 public:
  struct Found {
    std::size_t begin;
    std::size_t end;
    std::size_t pattern;  // the first of those that are equal
  };

  MultiPattern() = default;
  explicit MultiPattern(const std::vector<std::string>& patterns);  // empty ones are never found
  bool empty() const noexcept { return nodes_.size() < 2; }

  // Leftmost, longest, without overlaps; from left to right.
  class Scan {
   public:
    Scan(const MultiPattern& patterns, std::string_view text) : patterns_(patterns), text_(text) {}
    bool next(Found& found);

   private:
    void look_ahead();
    const MultiPattern& patterns_;
    std::string_view text_;
    std::size_t at_ = 0;          // nothing more is found before
    std::size_t ready_ = 0;       // up to here places are looked at
    std::vector<Found> waiting_;  // of the block at hand, from right to left
  };

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Node {
    std::uint32_t shorter = 0;      // the node of the longest proper part that is also a beginning
    std::uint32_t pattern = kNone;  // the longest that stands here
    std::uint32_t depth = 0;
  };
  struct Edge {
    std::uint64_t key = UINT64_MAX;
    std::uint32_t node = 0;
  };
  void add(std::string_view pattern, std::uint32_t index);
  void link();
  std::size_t slot(std::uint32_t node, char byte) const noexcept;
  std::uint32_t child(std::uint32_t node, char byte) const noexcept {
    return edges_[slot(node, byte)].node;
  }  // 0: none
  std::uint32_t step(std::uint32_t node, char byte) const noexcept;
  bool may_begin(std::string_view text, std::size_t at) const noexcept;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> lengths_;
  std::size_t longest_ = 0;
  std::bitset<256> firsts_;
  std::bitset<65536> first_pairs_;  // first and second byte; all pairs of a pattern of one byte
};

}  // namespace halfbyte::models::huggingface
