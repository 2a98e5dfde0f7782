// Any bytes as UTF-8, with the way back to where each character came from.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models {

// Bytes of the character that begins `text`; 0: what begins there is no character.
std::size_t valid_character_size(std::string_view text) noexcept;
// Bytes at the beginning of `text` that are valid UTF-8.
std::size_t valid_utf8_prefix(std::string_view text) noexcept;

// The text itself where it is UTF-8 (no copy), else a copy with U+FFFD for each longest beginning of a character and
// each byte that begins none, as Python's errors="replace" has it.
class Utf8Text {
 public:
  explicit Utf8Text(std::string_view bytes);
  Utf8Text(const Utf8Text&) = delete;
  Utf8Text& operator=(const Utf8Text&) = delete;

  std::string_view text() const noexcept { return text_; }

  // Where a character boundary of text() lies in the bytes.
  std::size_t source(std::size_t offset) const noexcept;

  // Whether an offset is where a span begins or where it ends: it matters within U+FFFD, a part of which stands for all
  // that it replaces.
  enum class Side { kBegin, kEnd };
  std::size_t source(std::size_t offset, Side side) const noexcept;

 private:
  struct Replaced {
    std::size_t at;      // in text(), of U+FFFD
    std::size_t source;  // in the bytes, of what it stands for
    std::size_t size;    // of that
  };
  // The first that does not end before `offset`.
  std::vector<Replaced>::const_iterator ending_after(std::size_t offset) const noexcept;

  std::string copy_;
  std::vector<Replaced> replaced_;
  std::string_view text_;
};

// A copy of Utf8Text's text.
std::string repaired_utf8(std::string_view bytes);

}  // namespace halfbyte::models
