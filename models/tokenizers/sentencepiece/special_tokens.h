// The tokens that are recognised in a text before it is split into pieces, and that stand beside the pieces.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/tokenizers/huggingface/multi_pattern.h"
#include "models/tokenizers/sentencepiece/config.h"
#include "models/tokenizers/sentencepiece/model_file.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models::sentencepiece {

// A stretch of a text: one added token, or what stands between.
struct Stretch {
  std::size_t begin;
  std::size_t end;
  std::int64_t id;  // negative: text
};

class SpecialTokenTable {
 public:
  SpecialTokenTable() = default;
  // Those of `config`, the control pieces, and ChatGLM's.
  SpecialTokenTable(const Config& config, const ModelFile& model);

  // As transformers' tokenizers in Python do: from the left, the longest. Only tokens that are not special when
  // kAsText.
  std::vector<Stretch> stretches(std::string_view text, SpecialTokens special) const;

  const AddedToken* find(std::int64_t id) const noexcept;  // null: no such token
  std::optional<std::int64_t> id_of(std::string_view text) const;
  std::int64_t end_id() const noexcept { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }  // ids are smaller

 private:
  void strip(std::string_view text, std::vector<Stretch>& stretches) const;

  std::map<std::int64_t, AddedToken> tokens_;
  std::unordered_map<std::string_view, std::int64_t> ids_;
  std::vector<std::int64_t> found_ids_;  // of the patterns
  huggingface::MultiPattern patterns_;   // part: those that are not special
};

}  // namespace halfbyte::models::sentencepiece
