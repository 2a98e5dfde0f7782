// WordPiece and WordLevel: the longest pieces of a word from the left, or the word as it is.
#pragma once

#include <optional>
#include <string>

#include "models/tokenizers/huggingface/model.h"

namespace halfbyte::models::huggingface {

class WordPiece : public Model {
 public:
  WordPiece(Vocabulary vocabulary, const JsonField& json);
  void tokenize(std::string_view word, Workspace& space) const override;

 private:
  std::optional<WordToken> longest(std::string_view word, std::size_t begin, std::string& spelled) const;
  void add_unknown(std::string_view word, Workspace& space) const;

  std::string where_;
  std::string unk_token_;
  std::string prefix_;
  std::size_t max_chars_;
  std::size_t max_token_bytes_ = 0;
};

class WordLevel : public Model {
 public:
  WordLevel(Vocabulary vocabulary, const JsonField& json);
  void tokenize(std::string_view word, Workspace& space) const override;

 private:
  std::string where_;
  std::string unk_token_;
};

}  // namespace halfbyte::models::huggingface
