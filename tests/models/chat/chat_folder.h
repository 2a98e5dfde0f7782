// A tokenizer of single bytes, and a checkpoint's folder with nothing but what says how to chat.
#pragma once

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/error.h>

#include "models/chat/chat_template.h"
#include "tests/places.h"

namespace halfbyte::models {

// Bytes are tokens 0 to 255; special tokens follow. A special one may take the blanks after it, as Phi-3's do.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> specials, bool takes_blanks = false)
      : specials_(std::move(specials)), takes_blanks_(takes_blanks) {}

  std::vector<TokenSpan> encode_spans(std::string_view text, SpecialTokens special) const override {
    std::vector<TokenSpan> spans;
    for (std::size_t at = 0; at < text.size();) {
      const auto id = special == SpecialTokens::kParse ? special_at(text.substr(at)) : std::nullopt;
      std::size_t end = at + (id ? specials_[*id].size() : 1);
      while (id && takes_blanks_ && end < text.size() && (text[end] == ' ' || text[end] == '\n')) ++end;
      spans.push_back({id ? static_cast<std::int64_t>(256 + *id) : static_cast<unsigned char>(text[at]), at, end});
      at = end;
    }
    return spans;
  }
  std::string decode(const TokenIds& ids, bool) const override {
    std::string text;
    for (const std::int64_t id : ids) text += piece(id);
    return text;
  }
  std::string piece(std::int64_t id) const override {
    return id < 256 ? std::string(1, static_cast<char>(id)) : specials_.at(static_cast<std::size_t>(id - 256));
  }
  bool is_special(std::int64_t id) const override { return id >= 256; }
  std::optional<std::int64_t> id_of(std::string_view piece) const override {
    if (piece.size() == 1) return static_cast<unsigned char>(piece[0]);
    const auto at = std::ranges::find(specials_, piece);
    return at == specials_.end() ? std::nullopt : std::optional<std::int64_t>(256 + (at - specials_.begin()));
  }
  const TokenIds& prefix() const override { return none_; }
  const TokenIds& suffix() const override { return none_; }
  std::int64_t vocab_size() const override { return 256 + static_cast<std::int64_t>(specials_.size()); }

 private:
  std::optional<std::size_t> special_at(std::string_view text) const {
    for (std::size_t i = 0; i < specials_.size(); ++i) {
      if (text.starts_with(specials_[i])) return i;
    }
    return std::nullopt;
  }
  std::vector<std::string> specials_;
  bool takes_blanks_;
  TokenIds none_;
};

inline std::string text_of(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

// A checkpoint's folder with nothing but what says how to chat.
class Folder {
 public:
  Folder& with(const std::string& name, const std::string& text) {
    std::ofstream(scratch_ / name) << text;
    return *this;
  }
  std::filesystem::path path() const { return scratch_ / "."; }
  std::string refusal(const ChatChoice& choice = {}) const {
    try {
      return "recognised as " + std::string(load_chat_template(path(), tokenizer_, choice).name());
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
  }
  ChatTemplate load(const ChatChoice& choice = {}) const { return load_chat_template(path(), tokenizer_, choice); }
  mutable ErrorCode code_{};
  ByteTokenizer tokenizer_{{"<|im_start|>", "<|im_end|>", "[INST]"}};

 private:
  tests::Scratch scratch_;
};

}  // namespace halfbyte::models
