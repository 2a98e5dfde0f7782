#include "models/tokenizers/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "models/tokenizers/huggingface/tokenizer.h"
#include "models/tokenizers/sentencepiece/tokenizer.h"

namespace halfbyte::models {
namespace {

// A window this long is cut back to its last half once all of it is printed, so that decoding stays linear in the text.
constexpr std::size_t kWindowTokens = 32;
constexpr std::size_t kLongestCharacter = 4;  // tokens, one a byte

int sequence_length(unsigned char lead) noexcept {
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  if (lead >= 0xE0) return lead < 0xF0 ? 3 : 1;
  return lead >= 0xC2 ? 2 : 1;
}

}  // namespace

TokenIds Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  TokenIds ids;
  for (const TokenSpan& token : encode_spans(text, special)) ids.push_back(token.id);
  return ids;
}

SpecialNames special_names(const Tokenizer& tokenizer, const TokenIds& parsed, const TokenIds& as_text) {
  std::map<std::int64_t, std::int64_t> more;  // of each token, than where names are text
  for (const std::int64_t id : parsed) ++more[id];
  for (const std::int64_t id : as_text) --more[id];
  SpecialNames names;
  for (const auto& [id, count] : more) {
    if (count <= 0 || !tokenizer.is_special(id)) continue;
    names.count += static_cast<std::size_t>(count);
    if (names.example.empty()) names.example = tokenizer.piece(id);
  }
  return names;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  const auto json = directory / "tokenizer.json";
  if (std::filesystem::exists(json)) return load_tokenizer_json(json);
  const auto model = directory / "tokenizer.model";
  if (is_ranked_tokens(model)) return load_ranked_tokens(model);
  if (std::filesystem::exists(model)) return load_sentencepiece(model, directory / "tokenizer_config.json");
  const bool has_lists =
      std::filesystem::exists(directory / "vocab.json") && std::filesystem::exists(directory / "merges.txt");
  return has_lists ? load_vocab_and_merges(directory) : nullptr;
}

std::size_t incomplete_utf8_tail(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    return static_cast<std::size_t>(sequence_length(byte)) > back ? back : 0;
  }
  return 0;
}

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, std::vector<std::int64_t> context)
    : tokenizer_(tokenizer) {
  if (context.size() > kWindowTokens) context.erase(context.begin(), context.end() - kWindowTokens);
  window_ = std::move(context);
  printed_ = tokenizer_.decode(window_);
}

std::string StreamingDecoder::push(std::int64_t token) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  window_.push_back(token);
  const std::string text = tokenizer_.decode(window_);
  // A decoder may show an unfinished character, or all that came with it, as U+FFFD; wait for its other bytes.
  const bool waits = text.ends_with(kReplacement) && ++waited_tokens_ < kLongestCharacter;
  if (waits) return {};
  waited_tokens_ = 0;
  std::string fresh = text.substr(std::min(printed_.size(), text.size()));
  fresh.resize(fresh.size() - incomplete_utf8_tail(fresh));
  const bool is_all = printed_.size() + fresh.size() >= text.size();
  printed_ = text.substr(0, printed_.size() + fresh.size());
  if (is_all && window_.size() > kWindowTokens) shorten_window();
  return fresh;
}

// Where a decoder takes a run of tokens together, only some of its ends read as they did in the whole.
void StreamingDecoder::shorten_window() {
  const bool must_shorten = window_.size() > 8 * kWindowTokens;
  for (std::size_t kept = kWindowTokens / 2; kept < kWindowTokens / 2 + kLongestCharacter; ++kept) {
    const TokenIds last(window_.end() - static_cast<std::ptrdiff_t>(kept), window_.end());
    const std::string end = tokenizer_.decode(last);
    if (!must_shorten && (end.empty() || !printed_.ends_with(end))) continue;
    window_ = last;
    printed_ = end;
    return;
  }
}

std::string StreamingDecoder::finish() {
  const std::string text = tokenizer_.decode(window_);
  std::string fresh = text.substr(std::min(printed_.size(), text.size()));
  printed_ = text;
  return fresh;
}

}  // namespace halfbyte::models
