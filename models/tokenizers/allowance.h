// What the steps of a tokenizer may do with one text: the file comes from a stranger, and a few steps that multiply
// would make gigabytes of a page.
#pragma once

#include <cstddef>
#include <string>

namespace halfbyte::models {

class Allowance {
 public:
  // All steps together may add this many bytes for each of the text's, and these in any case. Of Unicode's own forms
  // the one that grows most (U+FDFA) adds 10.
  static constexpr std::size_t kAddedPerByte = 16;
  static constexpr std::size_t kAddedAlways = std::size_t{1} << 20;
  // Searches by regular expressions that take many steps (regex.cpp): some of them, and one more for so many bytes.
  static constexpr std::size_t kLongSearches = 32;
  static constexpr std::size_t kBytesPerLongSearch = 32'768;

  explicit Allowance(std::size_t text_bytes) noexcept
      : left_(kAddedPerByte * text_bytes + kAddedAlways),
        long_searches_(kLongSearches + text_bytes / kBytesPerLongSearch) {}

  std::size_t left() const noexcept { return left_; }  // bytes that may still be added

  // `step` added so many. Errors: kCorrupt naming `step`, which is the file and the place in it.
  void add(std::size_t bytes, const std::string& step) {
    if (bytes > left_) refuse(step);
    left_ -= bytes;
  }
  [[noreturn]] static void refuse(const std::string& step);

  // False: there were enough.
  bool take_long_search() noexcept {
    if (long_searches_ == 0) return false;
    --long_searches_;
    return true;
  }

 private:
  std::size_t left_;
  std::size_t long_searches_;
};

// No token of any vocabulary is as long. Source: SentencePiece refuses pieces of 8000 bytes, which are up to twice as
// long in GPT-2's alphabet.
inline constexpr std::size_t kMaxTokenBytes = 16'384;

}  // namespace halfbyte::models
