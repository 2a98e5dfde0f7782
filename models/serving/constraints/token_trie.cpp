#include "models/serving/constraints/token_trie.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace halfbyte::serving {
namespace {

// "<0xE4>": a byte that a vocabulary without its character falls back to. Empty: it is none.
std::string fallback_byte(const std::string& piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || !piece.ends_with('>')) return "";
  unsigned value = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return error == std::errc() && end == piece.data() + 5 ? std::string(1, static_cast<char>(value)) : "";
}

// As it stands behind another token, where decoders do not trim it.
std::string bytes_of(const models::Tokenizer& tokenizer, std::int64_t token) {
  if (tokenizer.is_special(token)) return "";
  const std::string once = tokenizer.decode({token}), twice = tokenizer.decode({token, token});
  const std::string own = twice.size() >= once.size() ? twice.substr(once.size()) : "";
  return own.find("\xEF\xBF\xBD") == std::string::npos ? own : fallback_byte(tokenizer.piece(token));
}

}  // namespace

TokenTrie::TokenTrie(const models::Tokenizer& tokenizer) {
  const std::int64_t size = tokenizer.vocab_size();
  bytes_.reserve(static_cast<std::size_t>(size));
  for (std::int64_t token = 0; token < size; ++token) bytes_.push_back(bytes_of(tokenizer, token));
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int64_t token) { return bytes(token); });
  std::vector<std::int32_t> open;  // nodes of the token before
  std::string_view before;
  for (const std::int64_t token : order) {
    const std::string_view now = bytes(token);
    if (now.empty()) continue;
    const auto shared = static_cast<std::size_t>(std::ranges::mismatch(before, now).in1 - before.begin());
    const auto close = [&](std::size_t depth) {
      for (; open.size() > depth; open.pop_back())
        nodes_[static_cast<std::size_t>(open.back())].end = static_cast<std::int32_t>(nodes_.size());
    };
    close(shared);
    for (std::size_t i = shared; i < now.size(); ++i) {
      const auto here = static_cast<std::int32_t>(tokens_.size());
      open.push_back(static_cast<std::int32_t>(nodes_.size()));
      nodes_.push_back({static_cast<unsigned char>(now[i]), 0, here, here});
    }
    tokens_.push_back(token);
    nodes_[static_cast<std::size_t>(open.back())].last = static_cast<std::int32_t>(tokens_.size());
    before = now;
  }
  for (const std::int32_t node : open)
    nodes_[static_cast<std::size_t>(node)].end = static_cast<std::int32_t>(nodes_.size());
}

}  // namespace halfbyte::serving
