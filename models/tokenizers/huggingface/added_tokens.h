// Tokens that are found in the text itself, before the model sees it: <|im_end|>, [MASK], ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/huggingface/multi_pattern.h"
#include "models/tokenizers/huggingface/normalizer.h"
#include "models/tokenizers/huggingface/vocabulary.h"

namespace halfbyte::models::huggingface {

struct AddedToken {
  std::string content;
  std::string spelling;  // as it is decoded: the content, normalised where is_normalized
  std::uint32_t id = 0;
  bool is_special = false;
  bool is_normalized = false;  // found in the normalised text
  bool is_single_word = false;
  bool strips_left = false;
  bool strips_right = false;
};

// A stretch of a text: an added token, or what is between two.
struct AddedStretch {
  std::size_t begin;
  std::size_t end;
  const AddedToken* token;  // null: text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Ids are given as the library gives them: the model's for what it knows, else from its vocabulary's size on.
  AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizers& normalizers);

  // The tokens of one kind, found by their spelling.
  class Finder {
   public:
    void add(const AddedToken& token);
    void finish();
    bool empty() const noexcept { return tokens_.empty(); }

    // The stretches of one text, from left to right; none of them is empty text.
    class Scan {
     public:
      Scan(const Finder& finder, std::string_view text) : finder_(finder), text_(text), scan_(finder.patterns_, text) {}
      bool next(AddedStretch& stretch);

     private:
      bool is_apart(const MultiPattern::Found& found) const;
      AddedStretch widened(const MultiPattern::Found& found) const;
      const Finder& finder_;
      std::string_view text_;
      MultiPattern::Scan scan_;
      std::size_t done_ = 0;
      AddedStretch held_{};
      bool holds_ = false;
    };

   private:
    std::vector<AddedToken> tokens_;
    std::vector<std::string> spellings_;
    MultiPattern patterns_;
  };

  const Finder& in_raw_text(bool special) const noexcept { return special ? raw_ : raw_plain_; }
  const Finder& in_normalized_text(bool special) const noexcept { return special ? normalized_ : normalized_plain_; }

  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(std::uint32_t id) const;
  bool is_special(std::string_view content) const { return special_.contains(std::string(content)); }
  std::uint32_t id_end() const noexcept { return id_end_; }

 private:
  std::unordered_map<std::string, AddedToken> by_content_;
  std::unordered_map<std::uint32_t, AddedToken> by_id_;
  std::unordered_set<std::string> special_;
  std::uint32_t id_end_ = 0;
  Finder raw_, raw_plain_, normalized_, normalized_plain_;  // "plain": without special tokens
};

// Errors: kCorrupt.
std::vector<AddedToken> read_added_tokens(const JsonField& json);
AddedToken read_added_token(const JsonField& json);

}  // namespace halfbyte::models::huggingface
