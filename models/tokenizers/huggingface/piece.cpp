#include "models/tokenizers/huggingface/piece.h"

#include <algorithm>
#include <utility>

#include "models/tokenizers/huggingface/byte_alphabet.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {

Piece Piece::part(std::size_t from, std::size_t to) const noexcept {
  return {text.substr(from, to - from), origins ? origins + from : nullptr,
          begin == kUnknown ? kUnknown : begin + from};
}

Origin Piece::origin(std::size_t byte) const noexcept { return origin(byte, byte + 1); }

Origin Piece::origin(std::size_t from, std::size_t to) const noexcept {
  if (origins) return {origins[from].begin, origins[to - 1].end};
  if (begin == kUnknown) return {0, 0};
  while (from > 0 && is_continuation(text[from])) --from;
  while (to < text.size() && is_continuation(text[to])) ++to;
  return {static_cast<std::uint32_t>(begin + from), static_cast<std::uint32_t>(begin + to)};
}

bool Piece::begins_text() const noexcept {
  if (text.empty()) return false;
  return origins ? origins[0].begin == 0 : begin == 0;
}

void ChangingText::assign(std::string text, std::vector<Origin> origins) {
  if (text == piece_.text) return;
  text_ = std::move(text);
  origins_ = std::move(origins);
  piece_ = {text_, follows_origins_ ? origins_.data() : nullptr, Piece::kUnknown};
}

TextRewriter::TextRewriter(ChangingText& text, std::size_t removed_chars)
    : text_(text), old_(text.text()), most_(old_.size() + text.allowance().left()) {
  written_.reserve(old_.size());
  if (text.follows_origins()) origins_.reserve(old_.size());
  for (; removed_chars > 0; --removed_chars) position_ += next_char_bytes();
}

std::size_t TextRewriter::next_char_bytes() const noexcept {
  return position_ < old_.size() ? std::min(utf8_bytes(old_[position_]), old_.size() - position_) : 0;
}

void TextRewriter::note(std::size_t bytes, Origin origin) {
  if (text_.follows_origins()) origins_.insert(origins_.end(), bytes, origin);
}

Origin TextRewriter::nothing() const noexcept {
  const std::uint32_t begin = old_.empty() ? 0 : text_.piece().origin(0).begin;
  return {begin, begin};
}

void TextRewriter::put(char32_t code, std::int64_t change) {
  const std::size_t before = written_.size();
  append_utf8(written_, code);
  if (written_.size() > most_) Allowance::refuse(text_.step());
  if (text_.follows_origins()) {
    const std::size_t at = change > 0 ? position_ - 1 : position_;
    const bool is_known = change > 0 ? position_ > 0 : position_ < old_.size();
    note(written_.size() - before, is_known ? text_.piece().origin(at) : nothing());
  }
  for (std::int64_t consumed = change; consumed <= 0; ++consumed) position_ += next_char_bytes();
}

void TextRewriter::replace_next(std::string_view text) {
  write(text);
  if (text_.follows_origins() && !text.empty()) note(text.size(), text_.piece().origin(position_));
  position_ += next_char_bytes();
}

void TextRewriter::keep(std::size_t bytes) {
  write(old_.substr(position_, bytes));
  if (text_.follows_origins())
    for (std::size_t i = 0; i < bytes; ++i) origins_.push_back(text_.piece().origin(position_ + i));
  position_ += bytes;
}

void TextRewriter::skip(std::size_t bytes) { position_ += bytes; }

void TextRewriter::insert(std::string_view text) {
  write(text);
  if (!text_.follows_origins()) return;
  note(text.size(), position_ > 0 ? text_.piece().origin(position_ - 1) : nothing());
}

void TextRewriter::prepend(std::string_view text) {
  write(text);
  if (text_.follows_origins()) note(text.size(), position_ < old_.size() ? text_.piece().origin(position_) : nothing());
}

void TextRewriter::spell_bytes() {
  const auto& alphabet = byte_alphabet();
  for (; position_ < old_.size(); ++position_) {
    const std::string& spelled = alphabet[static_cast<unsigned char>(old_[position_])];
    write(spelled);
    if (text_.follows_origins()) note(spelled.size(), text_.piece().origin(position_));
  }
}

void TextRewriter::finish() {
  text_.allowance().add(written_.size() - std::min(written_.size(), old_.size()), text_.step());
  text_.assign(std::move(written_), std::move(origins_));
}

}  // namespace halfbyte::models::huggingface
