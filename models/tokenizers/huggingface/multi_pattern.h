// Finds many strings in a text at once: at each place the longest that begins there.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models::huggingface {

// Source: Aho and Corasick, 1975, run from right to left: a state is then the longest beginning of a pattern that
// stands at a place. Time is linear in the text whatever the patterns are; memory is 20 bytes for each of their bytes
// that no other shares.
class MultiPattern {
 public:
  struct Found {
    std::size_t begin;
    std::size_t end;
    std::size_t pattern;  // the first of those that are equal
  };

  MultiPattern() = default;
  // Empty ones are never found. Where `in_part` is not empty, a scan may ask for those alone for which it is true.
  explicit MultiPattern(const std::vector<std::string_view>& patterns, const std::vector<bool>& in_part = {});
  enum Set : std::uint8_t { kAll, kPart };
  bool empty(Set set) const noexcept { return counts_[set] == 0; }

  // Leftmost, longest, without overlaps; from left to right.
  class Scan {
   public:
    Scan(const MultiPattern& patterns, std::string_view text, Set set = kAll)
        : patterns_(patterns), text_(text), set_(set) {}
    bool next(Found& found);

   private:
    void look_ahead();
    const MultiPattern& patterns_;
    std::string_view text_;
    Set set_;
    std::size_t at_ = 0;          // nothing more is found before
    std::size_t ready_ = 0;       // up to here places are looked at
    std::vector<Found> waiting_;  // of the block at hand, from right to left
  };

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Node {
    std::uint32_t first_child = 0;
    std::uint32_t shorter = 0;                  // the node of the longest proper part that is also a beginning
    std::uint32_t pattern[2] = {kNone, kNone};  // of each set, the longest that stands here
    std::uint16_t children = 0;
    unsigned char byte = 0;
  };
  struct Patterns;
  void build(const Patterns& patterns);
  void link();
  std::uint32_t child(std::uint32_t node, char byte) const noexcept;  // 0: none
  std::uint32_t step(std::uint32_t node, char byte) const noexcept;
  bool may_begin(std::string_view text, std::size_t at) const noexcept;

  std::vector<Node> nodes_;                   // by depth, children of a node together; the root is the first
  std::array<std::uint32_t, 256> by_byte_{};  // children of the root; 0: none
  std::vector<std::uint32_t> lengths_;
  std::size_t counts_[2] = {};
  std::size_t longest_ = 0;
  std::bitset<256> firsts_;
  std::bitset<65536> first_pairs_;  // first and second byte; all pairs of a pattern of one byte
};

}  // namespace halfbyte::models::huggingface
