// Unigram: the way through a word whose pieces have the highest sum of scores.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/tokenizers/huggingface/hash.h"
#include "models/tokenizers/huggingface/model.h"

namespace halfbyte::models::huggingface {

struct UnigramOptions {
  std::optional<std::uint32_t> unk_id;
  bool byte_fallback = false;
};

// Time: bytes of the word times the longest piece. Memory: a word is finished up to wherever no piece reaches across.
class Unigram : public Model {
 public:
  Unigram(const std::vector<std::pair<std::string, double>>& pieces, UnigramOptions options, const std::string& where);
  void tokenize(std::string_view word, Workspace& space) const override;
  bool shows_text(std::uint32_t id) const noexcept override { return options_.unk_id == id; }

 private:
  class Search;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Edge {                      // of the trie over the pieces' bytes
    std::uint64_t key = UINT64_MAX;  // parent node and byte
    std::uint32_t node = 0;
  };
  void add_piece(std::string_view piece, std::uint32_t id);
  Edge& edge(std::uint32_t node, char byte);
  std::uint32_t child(std::uint32_t node, char byte) const noexcept;  // 0: none
  std::uint32_t unk_id() const;

  UnigramOptions options_;
  std::string where_;
  std::vector<double> scores_;
  double unk_score_ = 0;
  std::vector<std::uint32_t> byte_ids_;  // "<0x00>" ...; kNone
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> node_ids_;  // the piece that ends in a node, or kNone
};

}  // namespace halfbyte::models::huggingface
