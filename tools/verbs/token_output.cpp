#include "tools/verbs/token_output.h"

#include <charconv>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/output.h"

namespace halfbyte::cli {
namespace {

using models::TokenIds;
using models::TokenSpan;

constexpr std::size_t kBufferBytes = 1 << 16;
constexpr int kIdColumns = 7;
constexpr int kBytesColumns = 15;

std::string json_quoted(const std::string& text) { return json_text(nlohmann::ordered_json(text)); }

std::string padded(std::string text, int columns) {
  const auto missing = columns - static_cast<int>(text.size());
  return missing > 0 ? std::string(static_cast<std::size_t>(missing), ' ') + text : text;
}

// Every token of a text in order, as a span.
template <class Act>
void for_each_token(const TokenizedText& text, Act act) {
  for (const std::int64_t id : text.prefix) act(TokenSpan{id, 0, 0});
  for (const TokenSpan& token : text.tokens) act(token);
  for (const std::int64_t id : text.suffix) act(TokenSpan{id, text.size_bytes, text.size_bytes});
}

}  // namespace

TokenPrinter::TokenPrinter(const models::Tokenizer& tokenizer, TokenView view, bool is_json, char text_end)
    : tokenizer_(tokenizer), view_(view), is_json_(is_json), text_end_(text_end) {}

TokenPrinter::~TokenPrinter() { std::fwrite(buffer_.data(), 1, buffer_.size(), stdout); }

bool TokenPrinter::wants_spans() const noexcept {
  return view_ == TokenView::kPieces || (is_json_ && view_ == TokenView::kIds);
}

void TokenPrinter::put(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() < kBufferBytes) return;
  std::fwrite(buffer_.data(), 1, buffer_.size(), stdout);
  buffer_.clear();
}

void TokenPrinter::put(std::uint64_t number) {
  char digits[20];
  put(std::string_view(digits, std::to_chars(digits, digits + sizeof digits, number).ptr));
}

void TokenPrinter::put_ids(std::span<const std::int64_t> ids, std::string_view& separator) {
  for (const std::int64_t id : ids) {
    put(separator);
    put(static_cast<std::uint64_t>(id));
    separator = " ";
  }
}

const std::string& TokenPrinter::json_piece(std::int64_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= json_pieces_.size()) json_pieces_.resize(index + 1);
  if (json_pieces_[index].empty()) json_pieces_[index] = json_quoted(tokenizer_.piece(id));
  return json_pieces_[index];
}

void TokenPrinter::print(const TokenIds& prefix, const TokenIds& ids, const TokenIds& suffix) {
  if (view_ == TokenView::kCount) {
    put(is_json_ ? R"({"count": )" : "");
    put(prefix.size() + ids.size() + suffix.size());
    put(is_json_ ? "}\n" : "\n");
    return;
  }
  std::string_view separator;
  for (const TokenIds* part : {&prefix, &ids, &suffix}) put_ids(*part, separator);
  put("\n");
}

void TokenPrinter::print(const TokenizedText& text) { is_json_ ? print_json(text) : print_rows(text); }

void TokenPrinter::print_json(const TokenizedText& text) {
  std::string_view separator = "";
  const auto list = [&](std::string_view opening, auto put_one) {
    put(opening);
    separator = "";
    for_each_token(text, [&](const TokenSpan& token) {
      put(separator);
      put_one(token);
      separator = ", ";
    });
    put("]");
  };
  list(R"({"ids": [)", [&](const TokenSpan& token) { put(static_cast<std::uint64_t>(token.id)); });
  list(R"(, "pieces": [)", [&](const TokenSpan& token) { put(json_piece(token.id)); });
  list(R"(, "offsets": [)", [&](const TokenSpan& token) {
    put("[");
    put(token.begin);
    put(", ");
    put(token.end);
    put("]");
  });
  put("}\n");
}

void TokenPrinter::print_rows(const TokenizedText& text) {
  put(padded("id", kIdColumns) + padded("bytes", kBytesColumns) + "  piece\n");
  for_each_token(text, [&](const TokenSpan& token) {
    put(padded(std::to_string(token.id), kIdColumns));
    const std::string bytes = std::to_string(token.begin) + "-" + std::to_string(token.end);
    put(padded(token.begin == token.end ? "" : bytes, kBytesColumns));
    put("  " + printable(tokenizer_.piece(token.id)) + "\n");
  });
}

void TokenPrinter::print_text(const std::string& text) {
  put(is_json_ ? R"({"text": )" + json_quoted(text) + "}" : shown_text(text));
  put(std::string_view(is_json_ ? "\n" : &text_end_, 1));
}

}  // namespace halfbyte::cli
