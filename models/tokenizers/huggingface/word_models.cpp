#include "models/tokenizers/huggingface/word_models.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

std::uint32_t unknown_id(const Vocabulary& vocabulary, const std::string& token, const std::string& where) {
  if (const auto id = vocabulary.find(token)) return *id;
  throw Error(ErrorCode::kCorrupt, where + ": unk_token \"" + token + "\" is not in the vocabulary");
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, const JsonField& json)
    : Model(std::move(vocabulary)),
      where_(json.path()),
      unk_token_(json.string_or("unk_token", "[UNK]")),
      prefix_(json.string_or("continuing_subword_prefix", "##")),
      max_chars_(count_or(json, "max_input_chars_per_word", 100)) {
  for (std::uint32_t id = 0; id < vocabulary_.id_end(); ++id)
    max_token_bytes_ = std::max(max_token_bytes_, vocabulary_.token(id).size());
}

void WordPiece::add_unknown(std::string_view word, Workspace& space) const {
  const std::uint32_t id = unknown_id(vocabulary_, unk_token_, where_);
  space.tokens.push_back({id, 0, static_cast<std::uint32_t>(word.size())});
}

std::optional<WordToken> WordPiece::longest(std::string_view word, std::size_t begin, std::string& spelled) const {
  std::size_t end = std::min(word.size(), begin + max_token_bytes_);
  for (; end > begin; --end) {
    if (end < word.size() && is_continuation(word[end])) continue;
    spelled.assign(begin > 0 ? prefix_ : std::string()).append(word.substr(begin, end - begin));
    if (const auto id = vocabulary_.find(spelled))
      return WordToken{*id, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }
  return std::nullopt;
}

void WordPiece::tokenize(std::string_view word, Workspace& space) const {
  const auto chars = std::count_if(word.begin(), word.end(), [](char c) { return !is_continuation(c); });
  if (static_cast<std::size_t>(chars) > max_chars_) return add_unknown(word, space);
  const std::size_t first = space.tokens.size();
  std::string spelled;
  for (std::size_t begin = 0; begin < word.size();) {
    const auto token = longest(word, begin, spelled);
    if (!token) {
      space.tokens.resize(first);
      return add_unknown(word, space);
    }
    space.tokens.push_back(*token);
    begin = token->end;
  }
}

WordLevel::WordLevel(Vocabulary vocabulary, const JsonField& json)
    : Model(std::move(vocabulary)), where_(json.path()), unk_token_(json.string_or("unk_token", "<unk>")) {}

void WordLevel::tokenize(std::string_view word, Workspace& space) const {
  const auto id = vocabulary_.find(word);
  space.tokens.push_back(
      {id ? *id : unknown_id(vocabulary_, unk_token_, where_), 0, static_cast<std::uint32_t>(word.size())});
}

}  // namespace halfbyte::models::huggingface
