// What `halfbyte tokenize` prints, written as it is made: the JSON of a long text is never in memory.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::cli {

enum class TokenView { kIds, kPieces, kCount };

struct TokenizedText {
  const models::TokenIds& prefix;  // stands for no bytes at the text's beginning
  std::vector<models::TokenSpan> tokens;
  const models::TokenIds& suffix;  // stands for no bytes at its end
  std::size_t size_bytes;
};

class TokenPrinter {
 public:
  TokenPrinter(const models::Tokenizer& tokenizer, TokenView view, bool is_json, char text_end);
  ~TokenPrinter();
  TokenPrinter(const TokenPrinter&) = delete;
  TokenPrinter& operator=(const TokenPrinter&) = delete;

  // Which print() is wanted: the one with bytes, or the one with ids alone.
  bool wants_spans() const noexcept;
  void print(const TokenizedText& text);
  void print(const models::TokenIds& prefix, const models::TokenIds& ids, const models::TokenIds& suffix);
  void print_text(const std::string& text);

 private:
  void print_json(const TokenizedText& text);
  void print_rows(const TokenizedText& text);
  void put(std::string_view text);
  void put(std::uint64_t number);
  void put_ids(std::span<const std::int64_t> ids, std::string_view& separator);
  const std::string& json_piece(std::int64_t id);  // quoted

  const models::Tokenizer& tokenizer_;
  const TokenView view_;
  const bool is_json_;
  const char text_end_;
  std::string buffer_;
  std::vector<std::string> json_pieces_;  // of the ids seen so far; empty: not seen
};

}  // namespace halfbyte::cli
