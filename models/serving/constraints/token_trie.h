// A vocabulary by the bytes of its tokens, so that those which begin alike are tried together. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::serving {

class TokenTrie {
 public:
  // Tokens without bytes of their own and special ones are not in it.
  explicit TokenTrie(const models::Tokenizer& tokenizer);

  struct Node {
    unsigned char byte;
    std::int32_t end;          // of those that begin with it, in nodes(): they follow it
    std::int32_t first, last;  // tokens that end here, in tokens()
  };
  // In order: a node, then all that begin with it.
  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  const std::vector<std::int64_t>& tokens() const noexcept { return tokens_; }
  // Empty: it is not in it.
  std::string_view bytes(std::int64_t token) const {
    return token >= 0 && token < vocab_size() ? std::string_view(bytes_[static_cast<std::size_t>(token)]) : "";
  }
  std::int64_t vocab_size() const noexcept { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  std::vector<Node> nodes_;
  std::vector<std::int64_t> tokens_;
  std::vector<std::string> bytes_;
};

}  // namespace halfbyte::serving
