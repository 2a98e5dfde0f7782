#include "models/tokenizers/huggingface/added_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "models/tokenizers/huggingface/unicode.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {

AddedToken read_added_token(const JsonField& json) {
  AddedToken token;
  token.content = json.at("content").string();
  token.is_special = json.boolean_or("special", false);
  token.is_normalized = json.boolean_or("normalized", !token.is_special);
  token.is_single_word = json.boolean_or("single_word", false);
  token.strips_left = json.boolean_or("lstrip", false);
  token.strips_right = json.boolean_or("rstrip", false);
  return token;
}

std::vector<AddedToken> read_added_tokens(const JsonField& json) {
  std::vector<AddedToken> tokens;
  for (const JsonField& item : json.items()) {
    tokens.push_back(read_added_token(item));
    tokens.back().id = token_id(item.at("id"));
  }
  return tokens;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizers& normalizers) {
  const auto size = static_cast<std::uint32_t>(vocabulary.size());
  std::optional<std::uint32_t> highest;
  std::vector<std::string> order[2];  // special ones first, as the library asks them
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    if (token.is_special) special_.insert(token.content);
    const AddedToken* known = find(token.content);
    const auto in_model = vocabulary.find(token.content);
    token.id = known                                        ? known->id
               : in_model                                   ? *in_model
               : highest && (*highest >= size || size == 0) ? *highest + 1
                                                            : size;
    highest = std::max(highest.value_or(0), token.id);
    id_end_ = std::max(id_end_, token.id + 1);
    if (!known) order[token.is_special ? 0 : 1].push_back(token.content);
    token.spelling = token.is_normalized ? huggingface::normalized(normalizers, token.content) : token.content;
    by_content_[token.content] = token;
    by_id_[token.id] = token;
  }
  for (const auto& contents : order) {
    for (const std::string& content : contents) {
      const AddedToken& token = by_content_.at(content);
      (token.is_normalized ? normalized_ : raw_).add(token);
      if (!token.is_special) (token.is_normalized ? normalized_plain_ : raw_plain_).add(token);
    }
  }
  for (Finder* finder : {&raw_, &raw_plain_, &normalized_, &normalized_plain_}) finder->finish();
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

void AddedTokens::Finder::add(const AddedToken& token) {
  tokens_.push_back(token);
  spellings_.push_back(token.spelling);
}

void AddedTokens::Finder::finish() {
  if (!spellings_.empty()) patterns_ = MultiPattern(spellings_);
  spellings_.clear();
}

bool AddedTokens::Finder::Scan::is_apart(const MultiPattern::Found& found) const {
  const bool joins_left = found.begin > 0 && is_word(read_last_char(text_.substr(0, found.begin)).code);
  const bool joins_right = found.end < text_.size() && is_word(read_char(text_.data() + found.end).code);
  return !joins_left && !joins_right;
}

// With the white space that the token takes along; what the one before took stays with it.
AddedStretch AddedTokens::Finder::Scan::widened(const MultiPattern::Found& found) const {
  const AddedToken& token = finder_.tokens_[found.pattern];
  AddedStretch stretch{found.begin, found.end, &token};
  while (token.strips_left && stretch.begin > done_) {
    const Utf8Char before = read_last_char(text_.substr(0, stretch.begin));
    if (!is_white_space(before.code)) break;
    stretch.begin -= before.bytes;
  }
  while (token.strips_right && stretch.end < text_.size()) {
    const Utf8Char after = read_char(text_.data() + stretch.end);
    if (!is_white_space(after.code)) break;
    stretch.end += after.bytes;
  }
  return stretch;
}

bool AddedTokens::Finder::Scan::next(AddedStretch& stretch) {
  if (holds_) {
    holds_ = false;
    stretch = held_;
    return true;
  }
  MultiPattern::Found found{};
  while (scan_.next(found)) {
    if (finder_.tokens_[found.pattern].is_single_word && !is_apart(found)) continue;
    held_ = widened(found);
    const std::size_t begin = std::exchange(done_, held_.end);
    if (begin >= held_.begin) {
      stretch = held_;
      return true;
    }
    holds_ = true;
    stretch = {begin, held_.begin, nullptr};
    return true;
  }
  if (done_ >= text_.size()) return false;
  stretch = {std::exchange(done_, text_.size()), text_.size(), nullptr};
  return true;
}

}  // namespace halfbyte::models::huggingface
