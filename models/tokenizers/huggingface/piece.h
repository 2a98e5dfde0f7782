// A stretch of text on its way to the model, and where its bytes come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/allowance.h"

namespace halfbyte::models::huggingface {

// Bytes of the encoded text, [begin, end).
struct Origin {
  std::uint32_t begin;
  std::uint32_t end;
  bool operator==(const Origin&) const = default;
};

struct Piece {
  static constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

  std::string_view text;            // valid UTF-8, unless a byte-level model takes it
  const Origin* origins = nullptr;  // one a byte of `text`; null: the text stands in the encoded text at `begin`
  std::size_t begin = kUnknown;     // without `origins`; kUnknown: it was changed, and origins are not tracked

  Piece part(std::size_t from, std::size_t to) const noexcept;
  Origin origin(std::size_t byte) const noexcept;  // of the character that the byte belongs to
  // Of bytes [from, to), to > from. Zero when unknown.
  Origin origin(std::size_t from, std::size_t to) const noexcept;
  bool begins_text() const noexcept;
};

// Takes the pieces that a stage cuts.
class PieceSink {
 public:
  explicit PieceSink(Allowance& allowance) : allowance_(allowance) {}
  virtual ~PieceSink() = default;
  virtual void take(const Piece& piece) = 0;
  Allowance& allowance() const noexcept { return allowance_; }

 private:
  Allowance& allowance_;
};

// A text that normalizers and pre-tokenizers change. Follows where its bytes come from only when asked.
class ChangingText {
 public:
  // What is added comes out of `allowance`.
  ChangingText(const Piece& piece, bool follows_origins, Allowance& allowance)
      : piece_(piece), follows_origins_(follows_origins), allowance_(allowance) {}
  ChangingText(const ChangingText&) = delete;
  ChangingText& operator=(const ChangingText&) = delete;

  std::string_view text() const noexcept { return piece_.text; }
  const Piece& piece() const noexcept { return piece_; }
  bool follows_origins() const noexcept { return follows_origins_; }
  Allowance& allowance() const noexcept { return allowance_; }
  const std::string& step() const noexcept { return *step_; }
  // What changes it now, for errors; must outlive the text.
  void begin_step(const std::string& step) noexcept { step_ = &step; }
  // `origins` is empty when they are not followed.
  void assign(std::string text, std::vector<Origin> origins);

 private:
  Piece piece_;
  bool follows_origins_;
  Allowance& allowance_;
  const std::string* step_ = nullptr;
  std::string text_;
  std::vector<Origin> origins_;
};

// Writes a changed text from its characters in order, each with what it does to those of the old text:
// 0 stands for the next old character; -n also removes the n after it; above 0 is new, and has the origin of what came
// before. Source: `NormalizedString::transform_range` of Hugging Face's tokenizers, whose origins these are.
// Errors of all that writes: kCorrupt naming the text's step, where it adds more than it may.
class TextRewriter {
 public:
  explicit TextRewriter(ChangingText& text, std::size_t removed_chars = 0);
  void put(char32_t code, std::int64_t change);
  // The next old character becomes `text`, which may be empty.
  void replace_next(std::string_view text);
  void keep(std::size_t bytes);  // of whole old characters, as they are
  void skip(std::size_t bytes);
  void insert(std::string_view text);   // with the origin of the old character before
  void prepend(std::string_view text);  // with the origin of the old character after
  void spell_bytes();                   // all that is left, each byte by its character of GPT-2's alphabet
  std::size_t position() const noexcept { return position_; }
  void finish();  // the text becomes what was written

 private:
  std::size_t next_char_bytes() const noexcept;
  void write(std::string_view text) {
    if (text.size() > most_ - written_.size()) Allowance::refuse(text_.step());
    written_.append(text);
  }
  void note(std::size_t bytes, Origin origin);
  Origin nothing() const noexcept;  // of what stands for no character of the old text

  ChangingText& text_;
  std::string_view old_;
  std::size_t most_;          // bytes that may be written
  std::size_t position_ = 0;  // in the old text, bytes
  std::string written_;
  std::vector<Origin> origins_;
};

}  // namespace halfbyte::models::huggingface
