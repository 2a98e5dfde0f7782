#include "models/tokenizers/huggingface/added_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/printable.h"
#include "models/tokenizers/allowance.h"
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

// Where the token of this content stands, which it becomes.
AddedToken& AddedTokens::place_of(AddedToken token) {
  const auto known = by_content_.find(token.content);
  if (known == by_content_.end()) {
    tokens_.push_back(std::move(token));
    by_content_.emplace(tokens_.back().content, tokens_.size() - 1);
    return tokens_.back();
  }
  AddedToken& place = tokens_[known->second];
  token.was_special |= place.was_special;
  std::string kept = std::move(place.content);  // equal to the token's; by_content_ looks at this one
  place = std::move(token);
  place.content = std::move(kept);
  return place;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizers& normalizers,
                         const std::string& where) {
  const auto size = static_cast<std::uint32_t>(vocabulary.size());
  std::optional<std::uint32_t> highest;
  std::vector<std::size_t> order[2];  // special ones first, as the library asks them
  std::size_t bytes = 0;
  for (const AddedToken& token : tokens) bytes += token.content.size();
  Allowance allowance(bytes);
  tokens_.reserve(tokens.size());
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    token.was_special = token.is_special;
    const AddedToken* known = find(token.content);
    const auto in_model = vocabulary.find(token.content);
    token.id = known                                        ? known->id
               : in_model                                   ? *in_model
               : highest && (*highest >= size || size == 0) ? *highest + 1
                                                            : size;
    highest = std::max(highest.value_or(0), token.id);
    id_end_ = std::max(id_end_, token.id + 1);
    if (!known) order[token.is_special ? 0 : 1].push_back(tokens_.size());
    token.spelling =
        token.is_normalized ? huggingface::normalized(normalizers, token.content, allowance) : token.content;
    if (std::max(token.content.size(), token.spelling.size()) > kMaxTokenBytes)
      throw Error(ErrorCode::kCorrupt, where + ": " + in_quotes(std::string_view(token.content).substr(0, 64)) +
                                           "... is longer than any model's token: more than " +
                                           std::to_string(kMaxTokenBytes) + " bytes");
    by_id_[token.id] = static_cast<std::size_t>(&place_of(std::move(token)) - tokens_.data());
  }
  for (const auto& indices : order) {
    for (const std::size_t index : indices) (tokens_[index].is_normalized ? normalized_ : raw_).add(tokens_[index]);
  }
  for (Finder* finder : {&raw_, &normalized_}) finder->finish();
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

bool AddedTokens::is_special(std::string_view content) const {
  const AddedToken* token = find(content);
  return token && token->was_special;
}

void AddedTokens::Finder::finish() {
  std::vector<std::string_view> spellings;
  std::vector<bool> is_plain;
  for (const AddedToken* token : tokens_) {
    spellings.push_back(token->spelling);
    is_plain.push_back(!token->is_special);
  }
  if (!spellings.empty()) patterns_ = MultiPattern(spellings, is_plain);
}

bool AddedTokens::Finder::Scan::is_apart(const MultiPattern::Found& found) const {
  const bool joins_left = found.begin > 0 && is_word(read_last_char(text_.substr(0, found.begin)).code);
  const bool joins_right = found.end < text_.size() && is_word(read_char(text_.data() + found.end).code);
  return !joins_left && !joins_right;
}

// With the white space that the token takes along; what the one before took stays with it.
AddedStretch AddedTokens::Finder::Scan::widened(const MultiPattern::Found& found) {
  const AddedToken& token = *finder_.tokens_[found.pattern];
  AddedStretch stretch{found.begin, found.end, &token};
  while (token.strips_left && stretch.begin > done_) {
    const Utf8Char before = read_last_char(text_.substr(0, stretch.begin));
    if (!is_white_space(before.code)) break;
    stretch.begin -= before.bytes;
  }
  if (!token.strips_right) return stretch;
  stretch.end = std::max(stretch.end, white_end_);  // looked at already, where many tokens stand in one run of it
  while (stretch.end < text_.size()) {
    const Utf8Char after = read_char(text_.data() + stretch.end);
    if (!is_white_space(after.code)) break;
    stretch.end += after.bytes;
  }
  white_end_ = stretch.end;
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
    if (finder_.tokens_[found.pattern]->is_single_word && !is_apart(found)) continue;
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
