// A template's source as tokens: jinja2's lexer with trim_blocks and lstrip_blocks, as transformers sets it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models::jinja {

enum class TokenKind {
  kData,        // text between tags
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,   // its characters, escapes read
  kInteger,  // its digits, as written
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;  // from 1
};

constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 18;

// The last one is kEnd. Errors: kUnsupported, with the line; for a source that is too long, too.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace halfbyte::models::jinja
