#include "models/tokenizers/sentencepiece/normalizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte::models::sentencepiece {
namespace {

constexpr std::size_t kMaxReplacementBytes =
    1000;                                   // the longest of Unicode's own has 33; a text must not grow without bound
constexpr std::size_t kMaxRuleBytes = 256;  // of what a rule replaces: of Unicode's own, 18; a broken array has circles

// A unit of the double array: what a node says of itself and of its children.
bool is_value(std::uint32_t unit) { return unit >> 31 != 0; }
std::uint32_t value(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label(std::uint32_t unit) { return unit & 0x800000FF; }
std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }
bool has_value(std::uint32_t unit) { return (unit & 0x100) != 0; }

}  // namespace

std::size_t character_size(std::string_view text) noexcept {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(size, text.size());
}

// Every unit that a search can reach lies in the array, and every value in the texts: nothing is checked when
// searching.
Charsmap::Charsmap(std::string bytes, const std::string& name) {
  if (bytes.empty()) return;
  const auto fail = [&] {
    throw Error(ErrorCode::kCorrupt, name + ": its normalisation rules are broken; copy tokenizer.model again");
  };
  std::uint32_t trie_bytes = 0;
  if (bytes.size() <= sizeof trie_bytes) fail();
  std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (trie_bytes >= bytes.size() - sizeof trie_bytes || trie_bytes == 0 || trie_bytes % 1024 != 0 ||
      bytes.back() != '\0')
    fail();
  units_.resize(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  texts_ = bytes.substr(sizeof trie_bytes + trie_bytes);
  for (std::size_t begin = 0; begin < texts_.size(); begin = texts_.find('\0', begin) + 1) {
    if (texts_.find('\0', begin) - begin > kMaxReplacementBytes) fail();
  }
  for (std::uint32_t i = 0; i < units_.size(); ++i) {
    const std::uint32_t unit = units_[i];
    if (is_value(unit) ? value(unit) >= texts_.size() : (((i ^ offset(unit)) | 0xFF) >= units_.size())) fail();
  }
}

Charsmap::Replacement Charsmap::find(std::string_view text) const noexcept {
  Replacement found;
  if (units_.empty()) return found;
  std::uint32_t node = offset(units_[0]);
  for (std::size_t i = 0; i < std::min(text.size(), kMaxRuleBytes); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    const std::uint32_t unit = units_[node];
    if (label(unit) != byte) break;
    node ^= offset(unit);
    if (has_value(unit) && value(units_[node]) < texts_.size()) found = {i + 1, texts_.data() + value(units_[node])};
  }
  return found;
}

Normalizer::Normalizer(const NormalizerRules& rules, bool is_whitespace_suffix, PieceTrie kept, const std::string& name)
    : rules_(rules),
      is_whitespace_suffix_(is_whitespace_suffix),
      kept_(std::move(kept)),
      rules_name_(name + ": its normalisation rules"),
      charsmap_(rules.charsmap, name) {
  rules_.charsmap.clear();
}

Normalizer::Prefix Normalizer::normalize_prefix(std::string_view text) const noexcept {
  if (const auto kept = kept_.longest(text); kept.size > 0) return {text.substr(0, kept.size), kept.size};
  if (const auto replacement = charsmap_.find(text); replacement.size > 0) return {replacement.text, replacement.size};
  const std::size_t size = character_size(text);
  return {text.substr(0, size), size};
}

std::string Normalizer::normalize(std::string_view text) const {
  NormalizedText out;
  Allowance allowance(text.size());
  Run(*this, text, rules_.add_dummy_prefix, allowance).read(text.max_size(), out);
  return std::move(out.bytes);
}

Normalizer::Run::Run(const Normalizer& normalizer, std::string_view text, bool adds_dummy_prefix, Allowance& allowance)
    : normalizer_(normalizer),
      text_(text),
      allowance_(allowance),
      adds_dummy_prefix_(adds_dummy_prefix),
      is_previous_space_(normalizer.removes_extra_spaces()) {}

void Normalizer::Run::put_space(NormalizedText& out) const {
  const std::string_view space = normalizer_.rules_.escape_whitespaces ? kSpaceSymbol : " ";
  out.bytes += space;
  out.origins.insert(out.origins.end(), space.size(), consumed_);
}

void Normalizer::Run::skip_leading_spaces() {
  while (normalizer_.removes_extra_spaces() && consumed_ < text_.size()) {
    const Prefix prefix = normalizer_.normalize_prefix(text_.substr(consumed_));
    if (prefix.text != " ") return;
    consumed_ += prefix.size;
  }
}

void Normalizer::Run::take_one(NormalizedText& out) {
  auto [replacement, size] = normalizer_.normalize_prefix(text_.substr(consumed_));
  if (replacement.size() > size) allowance_.add(replacement.size() - size, normalizer_.rules_name_);
  while (is_previous_space_ && replacement.starts_with(' ')) replacement.remove_prefix(1);
  for (const char c : replacement) {
    if (c == ' ') {
      put_space(out);
    } else {
      out.bytes += c;
      out.origins.push_back(consumed_);
    }
  }
  if (!replacement.empty()) is_previous_space_ = normalizer_.removes_extra_spaces() && replacement.ends_with(' ');
  consumed_ += size;
}

void Normalizer::Run::finish(NormalizedText& out) {
  const std::string_view space = normalizer_.rules_.escape_whitespaces ? kSpaceSymbol : " ";
  while (normalizer_.removes_extra_spaces() && out.bytes.ends_with(space)) {
    out.bytes.erase(out.bytes.size() - space.size());
    consumed_ = out.origins[out.bytes.size()];
    out.origins.resize(out.bytes.size());
  }
  if (normalizer_.is_whitespace_suffix_ && adds_dummy_prefix_) put_space(out);
  is_done_ = true;
}

void Normalizer::Run::read(std::size_t bytes, NormalizedText& out) {
  if (is_done_) return;
  if (!out.origins.empty()) out.origins.pop_back();  // of what follows
  if (!is_started_) {
    is_started_ = true;
    skip_leading_spaces();
    if (consumed_ == text_.size()) {
      is_done_ = true;
    } else if (adds_dummy_prefix_ && !normalizer_.is_whitespace_suffix_) {
      put_space(out);
    }
  }
  const std::size_t wanted =
      bytes > out.bytes.max_size() - out.bytes.size() ? out.bytes.max_size() : out.bytes.size() + bytes;
  while (out.bytes.size() < wanted && consumed_ < text_.size()) take_one(out);
  if (consumed_ == text_.size() && !is_done_) finish(out);
  out.origins.push_back(consumed_);
}

}  // namespace halfbyte::models::sentencepiece
