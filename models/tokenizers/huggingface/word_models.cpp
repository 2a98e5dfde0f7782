#include "models/tokenizers/huggingface/word_models.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/printable.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

std::uint32_t unknown_id(const Vocabulary& vocabulary, const std::string& token, const std::string& where) {
  if (const auto id = vocabulary.find(token)) return *id;
  throw Error(ErrorCode::kCorrupt, where + ": unk_token " + in_quotes(token) + " is not in the vocabulary");
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, const JsonField& json)
    : Model(std::move(vocabulary)),
      where_(json.path()),
      unk_token_(json.string_or("unk_token", "[UNK]")),
      max_chars_(count_or(json, "max_input_chars_per_word", 100)) {
  const std::string prefix = json.string_or("continuing_subword_prefix", "##");
  std::vector<sentencepiece::PieceTrie::Entry> first, continued;
  for (const auto& [token, id] : vocabulary_.entries()) {
    const auto number = static_cast<std::int32_t>(id);
    if (!token.empty()) first.emplace_back(token, number);
    if (token.size() > prefix.size() && token.starts_with(prefix))
      continued.emplace_back(token.substr(prefix.size()), number);
  }
  first_ = sentencepiece::PieceTrie(std::move(first));
  continued_ = sentencepiece::PieceTrie(std::move(continued));
}

void WordPiece::add_unknown(std::string_view word, Workspace& space) const {
  const std::uint32_t id = unknown_id(vocabulary_, unk_token_, where_);
  space.tokens.push_back({id, 0, static_cast<std::uint32_t>(word.size())});
}

void WordPiece::tokenize(std::string_view word, Workspace& space) const {
  const auto chars = std::count_if(word.begin(), word.end(), [](char c) { return !is_continuation(c); });
  if (static_cast<std::size_t>(chars) > max_chars_) return add_unknown(word, space);
  const std::size_t first = space.tokens.size();
  for (std::size_t begin = 0; begin < word.size();) {
    const auto token = (begin > 0 ? continued_ : first_).longest(word.substr(begin));
    if (token.size == 0) {
      space.tokens.resize(first);
      return add_unknown(word, space);
    }
    const std::size_t end = begin + token.size;
    space.tokens.push_back(
        {static_cast<std::uint32_t>(token.number), static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    begin = end;
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
