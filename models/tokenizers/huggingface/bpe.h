// Byte pair encoding: the pair of neighbours with the lowest rank is merged, until none has a rank.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/tokenizers/huggingface/bpe_tables.h"
#include "models/tokenizers/huggingface/model.h"

namespace halfbyte::models::huggingface {

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool words_are_bytes = false;
};

// Time: n log n in a word's symbols; long words are cut first where no merge can ever reach across, which changes
// nothing.
class Bpe : public Model {
 public:
  // Errors: kCorrupt naming `where`: a merge of tokens that are not in the vocabulary, or into one that is not.
  Bpe(Vocabulary vocabulary, BpeOptions options, const std::vector<std::pair<std::string, std::string>>& merges,
      const std::string& where);
  void tokenize(std::string_view word, Workspace& space) const override;

 private:
  class Run;
  using Merges = std::vector<std::pair<std::string, std::string>>;
  void add_merges(const Merges& merges);
  void find_symbols();
  void find_whole_words();
  void find_cuts(const Merges& merges);
  bool has_all_symbols() const;
  // The symbols that a word can begin with, or end with, where its token is `token`.
  std::vector<std::uint32_t> outer_symbols(std::string_view token, bool at_end) const;
  std::optional<std::uint32_t> symbol(char32_t code, std::string_view text) const;
  std::uint32_t unk_id() const;

  BpeOptions options_;
  std::string where_;
  std::optional<std::uint32_t> unk_id_;
  std::optional<Vocabulary> whole_words_;     // by bytes, for ignore_merges of words that are bytes
  std::vector<std::uint32_t> small_symbols_;  // of each byte, or of each code point below 65536; kNoSymbol
  std::vector<std::uint32_t> byte_symbols_;   // "<0x00>" ...; kNoSymbol
  MergeTable merges_;
  PairSet reaching_;  // neighbours that some merge may join
  bool cuts_ = false;
};

}  // namespace halfbyte::models::huggingface
