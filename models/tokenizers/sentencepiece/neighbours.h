// Which characters stand side by side in any piece: between others a text can be cut without changing its tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace halfbyte::models::sentencepiece {

class Neighbours {
 public:
  void add(std::string_view piece);
  bool contains(std::string_view left, std::string_view right) const noexcept;

 private:
  static std::uint64_t key(std::string_view left, std::string_view right) noexcept;
  std::size_t place_of(std::uint64_t key) const noexcept;
  void grow();

  std::vector<std::uint64_t> table_;  // a power of two; 0: free
  std::size_t count_ = 0;
};

}  // namespace halfbyte::models::sentencepiece
