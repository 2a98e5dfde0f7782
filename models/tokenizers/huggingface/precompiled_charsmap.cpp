#include "models/tokenizers/huggingface/precompiled_charsmap.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/unicode.h"
#include "models/tokenizers/huggingface/utf8.h"
#include "models/tokenizers/utf8_text.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr std::size_t kMaxGraphemeBytes = 5;        // a longer one is looked up character by character
constexpr std::size_t kMaxReplacementBytes = 1000;  // the longest of Unicode's own has 33

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return bytes;
}

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t label(std::uint32_t unit) { return unit & (0x80000000U | 0xFFU); }
std::size_t offset(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 1U << 9) >> 6); }

}  // namespace

PrecompiledCharsmap::PrecompiledCharsmap(std::string_view base64, const std::string& path) {
  const auto fail = [&path](const char* problem) { throw Error(ErrorCode::kCorrupt, path + ": " + problem); };
  const auto bytes = decode_base64(base64);
  if (!bytes) fail("is not base64");
  if (bytes->size() < 4) fail("has fewer than 4 bytes");
  const std::string_view rest = std::string_view(*bytes).substr(4);
  const std::size_t trie_bytes = little_endian(*bytes) / 4 * 4;
  if (trie_bytes > rest.size()) fail("declares a trie longer than itself");
  for (std::size_t i = 0; i < trie_bytes; i += 4) units_.push_back(little_endian(rest.substr(i)));
  texts_ = rest.substr(trie_bytes);
  if (valid_utf8_prefix(texts_) != texts_.size()) fail("holds texts that are not UTF-8");
  for (std::size_t begin = 0, end = 0; begin < texts_.size(); begin = end + 1) {
    end = std::min(texts_.find('\0', begin), texts_.size());
    if (end - begin > kMaxReplacementBytes) fail("holds a text of more than 1000 bytes, and no character becomes one");
  }
}

std::optional<std::string_view> PrecompiledCharsmap::find(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  std::size_t at = offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label(units_[at]) != byte) return std::nullopt;
    const std::uint32_t unit = units_[at];
    at ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size()) return std::nullopt;
    const std::size_t begin = units_[at] & 0x7FFFFFFFU;
    if (begin > texts_.size() || (begin < texts_.size() && is_continuation(texts_[begin]))) return std::nullopt;
    return std::string_view(texts_).substr(begin, std::min(texts_.find('\0', begin), texts_.size()) - begin);
  }
  return std::nullopt;
}

// The last characters are the new ones where the text grows; where it shrinks, the last one written takes the rest with
// it, even when it belongs to what stands before. Nothing has been written before the first: then it stays.
void PrecompiledCharsmap::replace(std::string_view old, std::string_view replacement, std::vector<Written>& out) {
  const std::u32string chars = to_utf32(replacement);
  const auto change = static_cast<std::int64_t>(chars.size()) - static_cast<std::int64_t>(to_utf32(old).size());
  for (const char32_t code : chars) out.push_back({code, 0});
  for (std::int64_t added = 0; added < change; ++added)
    out[out.size() - 1 - static_cast<std::size_t>(added)].change = 1;
  if (change < 0 && !out.empty()) out.back().change += change;
}

void PrecompiledCharsmap::rewrite_char(std::string_view c, std::vector<Written>& out) const {
  const auto replacement = find(c);
  if (replacement) return replace(c, *replacement, out);
  out.push_back({read_char(c.data()).code, 0});
}

void PrecompiledCharsmap::rewrite_grapheme(std::string_view grapheme, std::vector<Written>& out) const {
  const auto whole = grapheme.size() <= kMaxGraphemeBytes ? find(grapheme) : std::nullopt;
  if (whole) return replace(grapheme, *whole, out);
  for (std::size_t i = 0; i < grapheme.size(); i += utf8_bytes(grapheme[i]))
    rewrite_char(grapheme.substr(i, utf8_bytes(grapheme[i])), out);
}

void PrecompiledCharsmap::hand_on(std::vector<Written>& written, TextRewriter& out) {
  if (written.size() < 2) return;
  for (std::size_t i = 0; i + 1 < written.size(); ++i) out.put(written[i].code, written[i].change);
  written.erase(written.begin(), written.end() - 1);
}

void PrecompiledCharsmap::apply(ChangingText& text) const {
  const std::string_view old = text.text();
  std::vector<Written> written;
  TextRewriter out(text);
  for (std::size_t begin = 0; begin < old.size();) {
    std::size_t end = begin;
    std::int32_t state = 0;
    for (Utf8Char last{}; end < old.size(); end += last.bytes) {
      const Utf8Char next = read_char(old.data() + end);
      if (end > begin && is_grapheme_break(last.code, next.code, state)) break;
      last = next;
    }
    rewrite_grapheme(old.substr(begin, end - begin), written);
    begin = end;
    hand_on(written, out);
  }
  for (const auto& [code, change] : written) out.put(code, change);
  out.finish();
}

}  // namespace halfbyte::models::huggingface
