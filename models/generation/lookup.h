// Guesses of a text's next tokens from the text itself: what followed the same tokens when they came last. Source:
// prompt lookup decoding. Needs no LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace halfbyte::models {

class Lookup {
 public:
  // How many of the last tokens came before; the more, the likelier the guess.
  static constexpr std::array<std::size_t, 3> kLengths = {6, 3, 2};

  struct Guess {
    std::vector<std::int64_t> tokens = {};  // empty: the last tokens did not come before
    std::size_t length = 0;                 // of kLengths, which one
  };
  // Up to `most` tokens that may follow `tokens`, which begin with those of the call before.
  Guess guess(std::span<const std::int64_t> tokens, std::size_t most);

 private:
  void index(std::span<const std::int64_t> tokens);
  std::array<std::unordered_map<std::uint64_t, std::size_t>, kLengths.size()> ends_;  // of runs: where they ended last
  std::size_t indexed_ = 0;
};

}  // namespace halfbyte::models
