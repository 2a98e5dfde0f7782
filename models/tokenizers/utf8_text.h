// Any bytes as UTF-8, with the way back to where each character came from.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models {

// Bytes of the character that begins `text`; 0: what begins there is no character.
std::size_t valid_character_size(std::string_view text) noexcept;

// The text itself where it is UTF-8 (no copy), else a copy with U+FFFD for each longest beginning of a character and
// each byte that begins none, as Python's errors="replace" has it.
class Utf8Text {
 public:
  explicit Utf8Text(std::string_view bytes);
  Utf8Text(const Utf8Text&) = delete;
  Utf8Text& operator=(const Utf8Text&) = delete;

  std::string_view text() const noexcept { return text_; }

  // Whether an offset is where a span begins or where it ends: it matters within U+FFFD.
  enum class Side { kBegin, kEnd };

  // Turns offsets into text() to offsets into the bytes. Call with offsets that never fall.
  class Cursor {
   public:
    explicit Cursor(const Utf8Text& text) : text_(text) {}
    std::size_t source(std::size_t offset, Side side);

   private:
    const Utf8Text& text_;
    std::size_t next_ = 0;
    std::ptrdiff_t shift_ = 0;
  };

 private:
  struct Replaced {
    std::size_t at;      // in text(), of U+FFFD
    std::size_t source;  // in the bytes, of what it stands for
    std::size_t size;    // of that
  };
  std::string copy_;
  std::vector<Replaced> replaced_;
  std::string_view text_;
};

}  // namespace halfbyte::models
