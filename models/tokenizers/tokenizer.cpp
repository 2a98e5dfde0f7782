#include "models/tokenizers/tokenizer.h"

#include <algorithm>
#include <utility>

#include "models/tokenizers/huggingface/tokenizer.h"
#include "models/tokenizers/sentencepiece/tokenizer.h"

namespace halfbyte::models {
namespace {

// A window this long is cut back to its last half once all of it is printed, so that decoding stays linear in the text.
constexpr std::size_t kWindowTokens = 32;

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

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  const auto json = directory / "tokenizer.json";
  if (std::filesystem::exists(json)) return load_tokenizer_json(json);
  const auto model = directory / "tokenizer.model";
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
  printed_bytes_ = tokenizer_.decode(window_).size();
}

std::string StreamingDecoder::fresh_text() {
  const std::string text = tokenizer_.decode(window_);
  return text.substr(std::min(printed_bytes_, text.size()));
}

std::string StreamingDecoder::push(std::int64_t token) {
  window_.push_back(token);
  std::string fresh = fresh_text();
  // A decoder may show an unfinished character as U+FFFD; wait for its other bytes.
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::size_t held = incomplete_utf8_tail(fresh);
  while (std::string_view(fresh).substr(0, fresh.size() - held).ends_with(kReplacement) &&
         held < 4 * kReplacement.size()) {
    held += kReplacement.size();
  }
  if (held >= 4 * kReplacement.size()) held = 0;  // not a character in the making
  fresh.resize(fresh.size() - held);
  printed_bytes_ += fresh.size();
  if (held == 0 && window_.size() > kWindowTokens) {
    window_.erase(window_.begin(), window_.end() - kWindowTokens / 2);
    printed_bytes_ = tokenizer_.decode(window_).size();
  }
  return fresh;
}

std::string StreamingDecoder::finish() {
  std::string fresh = fresh_text();
  printed_bytes_ += fresh.size();
  return fresh;
}

}  // namespace halfbyte::models
