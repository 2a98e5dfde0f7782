// Tokens that are found in the text itself, before the model sees it: <|im_end|>, [MASK], ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
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
  bool was_special = false;    // in the file's list, here or in an earlier entry of the same content
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
  // Errors: kCorrupt naming `where`: a token that is too long, or that the normalizers multiply.
  AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizers& normalizers,
              const std::string& where);
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;

  // The tokens of one kind, found by their spelling.
  class Finder {
   public:
    void add(const AddedToken& token) { tokens_.push_back(&token); }
    void finish();

    // The stretches of one text, from left to right; none of them is empty text.
    class Scan {
     public:
      // Without `special`, those that are not special alone.
      Scan(const Finder& finder, std::string_view text, bool special)
          : finder_(finder),
            text_(text),
            scan_(finder.patterns_, text, special ? MultiPattern::kAll : MultiPattern::kPart) {}
      bool next(AddedStretch& stretch);

     private:
      bool is_apart(const MultiPattern::Found& found) const;
      AddedStretch widened(const MultiPattern::Found& found);
      const Finder& finder_;
      std::string_view text_;
      MultiPattern::Scan scan_;
      std::size_t done_ = 0;
      std::size_t white_end_ = 0;  // of the white space that a token took along
      AddedStretch held_{};
      bool holds_ = false;
    };

   private:
    std::vector<const AddedToken*> tokens_;
    MultiPattern patterns_;
  };

  const Finder& in_raw_text() const noexcept { return raw_; }
  const Finder& in_normalized_text() const noexcept { return normalized_; }

  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(std::uint32_t id) const;
  bool is_special(std::string_view content) const;
  std::uint32_t id_end() const noexcept { return id_end_; }

 private:
  AddedToken& place_of(AddedToken token);

  std::vector<AddedToken> tokens_;  // one of each content, the last of the file
  std::unordered_map<std::string_view, std::size_t> by_content_;
  std::unordered_map<std::uint32_t, std::size_t> by_id_;
  std::uint32_t id_end_ = 0;
  Finder raw_, normalized_;
};

// Errors: kCorrupt.
std::vector<AddedToken> read_added_tokens(const JsonField& json);
AddedToken read_added_token(const JsonField& json);

}  // namespace halfbyte::models::huggingface
