// WordPiece and WordLevel: the longest pieces of a word from the left, or the word as it is.
#pragma once

#include <string>

#include "models/tokenizers/huggingface/model.h"
#include "models/tokenizers/sentencepiece/piece_trie.h"

namespace halfbyte::models::huggingface {

// Time: bytes of the word times the longest token.
class WordPiece : public Model {
 public:
  WordPiece(Vocabulary vocabulary, const JsonField& json);
  void tokenize(std::string_view word, Workspace& space) const override;

 private:
  void add_unknown(std::string_view word, Workspace& space) const;

  std::string where_;
  std::string unk_token_;
  std::size_t max_chars_;
  sentencepiece::PieceTrie first_;      // tokens that begin a word
  sentencepiece::PieceTrie continued_;  // those that go on in it, without their prefix
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
