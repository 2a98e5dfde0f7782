// Models: how a word becomes tokens.
#pragma once

#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "models/tokenizers/allowance.h"
#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/huggingface/json_reader.h"
#include "models/tokenizers/huggingface/vocabulary.h"
#include "models/tokenizers/huggingface/word_cache.h"

namespace halfbyte::models::huggingface {

// What one thread needs to make tokens of words; kept between words and texts.
struct Workspace {
  Allowance* allowance = nullptr;  // of the text at hand

  struct Symbol {
    std::uint32_t id;
    std::uint32_t length;  // bytes; 0: merged into one before it
    std::uint32_t previous;
    std::uint32_t next;
  };
  struct Merge {
    std::uint32_t rank;
    std::uint32_t position;
    std::uint32_t id;
  };
  struct Node {  // the best way to a place in the word
    double score;
    std::uint32_t id;
    std::uint32_t begin;
    bool is_reached;
  };
  WordCache cache;
  std::vector<WordToken> tokens;  // of the word at hand
  std::vector<Symbol> symbols;
  std::vector<std::uint32_t> ranks;
  std::vector<Merge> merges;
  std::vector<Node> nodes;
  std::vector<WordToken> backwards;

  // After a long word: what lies idle between texts stays small.
  void release_large() {
    constexpr std::size_t kKept = 4096;
    const auto release = [](auto& list) {
      if (list.capacity() > kKept) std::decay_t<decltype(list)>().swap(list);
    };
    release(tokens);
    release(symbols);
    release(merges);
    release(nodes);
    release(backwards);
  }
};

// May be used by many threads at once, each with its own workspace.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the tokens of `word` to `space.tokens`. Errors: kCorrupt when the word needs an unknown token that the file
  // lacks.
  virtual void tokenize(std::string_view word, Workspace& space) const = 0;
  // The token stands for whatever text it was made of, not for its spelling.
  virtual bool shows_text(std::uint32_t) const noexcept { return false; }
  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Vocabulary vocabulary_;
};

// `words_are_bytes`: words are the bytes for which GPT-2's alphabet stands in the vocabulary; only where takes_bytes()
// allows it. Errors: kUnsupported for a type that is not known, kCorrupt.
std::unique_ptr<Model> read_model(const JsonField& json, VocabularyLists lists, bool words_are_bytes);
bool takes_bytes(const JsonField& json, const VocabularyLists& lists);
std::vector<std::string_view> model_types();

}  // namespace halfbyte::models::huggingface
