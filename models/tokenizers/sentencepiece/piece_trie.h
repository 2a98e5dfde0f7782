// Strings by their bytes: which of them begin a text. For pieces, user-defined symbols and added tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace halfbyte::models::sentencepiece {

class PieceTrie {
 public:
  using Entry = std::pair<std::string_view, std::int32_t>;  // a string that is not empty, and its number, from 0 on

  PieceTrie() = default;
  explicit PieceTrie(std::vector<Entry> entries);  // the first of equal strings counts

  bool empty() const noexcept { return nodes_.empty(); }

  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  // One byte further; kNone: no string goes on so.
  std::uint32_t step(std::uint32_t node, unsigned char byte) const noexcept;
  // Of the string that ends here; negative: none does.
  std::int32_t number(std::uint32_t node) const noexcept { return nodes_[node].number; }

  struct Match {
    std::size_t size = 0;  // 0: no string begins the text
    std::int32_t number = -1;
  };
  Match longest(std::string_view text) const noexcept;

 private:
  struct Node {
    std::uint32_t first_child = 0;
    std::uint16_t children = 0;
    unsigned char byte = 0;
    std::int32_t number = -1;
  };
  std::vector<Node> nodes_;  // children of a node lie together, by byte; the root is the first
  std::array<std::uint32_t, 256> first_bytes_{};
};

}  // namespace halfbyte::models::sentencepiece
