#include <algorithm>
#include <utility>

#include "models/tokenizers/sentencepiece/neighbours.h"
#include "models/tokenizers/sentencepiece/normalizer.h"
#include "models/tokenizers/sentencepiece/piece_trie.h"
#include "models/tokenizers/sentencepiece/splitter.h"

namespace halfbyte::models::sentencepiece {
namespace {

constexpr std::size_t kRememberedBytes = 48;  // longer words are rarely met again
constexpr std::size_t kRememberedWords = 1 << 16;

struct Symbol {
  std::uint32_t begin;
  std::uint32_t size;     // 0: merged into the one before
  std::int32_t previous;  // negative: none
  std::int32_t next;
  std::int32_t id;  // negative: not in the vocabulary
  bool is_frozen;   // a user-defined symbol, which never merges
};

// Two symbols side by side that make a piece.
struct Merge {
  float score;
  std::int32_t left;
  std::uint32_t size;  // of both; if it is no longer, one of them has merged otherwise
  std::int32_t right;
  std::int32_t id;
};

// The next merge is the largest: of the best score, the leftmost.
bool comes_later(const Merge& a, const Merge& b) noexcept {
  return a.score < b.score || (a.score == b.score && a.left > b.left);
}

class Bpe : public Splitter {
 public:
  explicit Bpe(const ModelFile& model) : model_(model) {
    std::vector<PieceTrie::Entry> symbols;
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
      const Piece& piece = model.pieces[id];
      const auto number = static_cast<std::int32_t>(id);
      if (piece.type == PieceType::kUserDefined) symbols.emplace_back(piece.text, number);
      if (piece.type == PieceType::kUnused) has_unused_ = true;
      if (piece.type != PieceType::kNormal && piece.type != PieceType::kUserDefined && piece.type != PieceType::kUnused)
        continue;
      ids_.emplace(piece.text, number);
      neighbours_.add(piece.text);
    }
    symbols_ = PieceTrie(std::move(symbols));
  }

  void split(std::string_view part, SplitState& state, std::vector<Split>& out) const override {
    if (has_unused_) return merge(part, out);
    while (!part.empty()) {
      const std::size_t size = word_size(part);
      split_word(part.substr(0, size), state, out);
      part.remove_prefix(size);
    }
  }

  // Where unused pieces are, how one is taken apart depends on the whole text.
  bool joins(std::string_view left, std::string_view right) const noexcept override {
    return has_unused_ || neighbours_.contains(left, right);
  }

 private:
  using Undone = std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>>;

  struct Work {
    std::string_view text;
    std::vector<Symbol> symbols;
    std::vector<Merge> heap;
    Undone undone;  // what each unused piece was merged of
  };

  // Up to the first place that no piece crosses.
  std::size_t word_size(std::string_view part) const noexcept {
    std::size_t size = character_size(part);
    std::string_view left = part.substr(0, size);
    while (size < part.size()) {
      const std::string_view right = part.substr(size, character_size(part.substr(size)));
      if (!neighbours_.contains(left, right)) break;
      size += right.size();
      left = right;
    }
    return size;
  }

  void split_word(std::string_view word, SplitState& state, std::vector<Split>& out) const {
    if (word.size() > kRememberedBytes) return merge(word, out);
    const auto known = state.known.find(word);
    if (known != state.known.end()) {
      out.insert(out.end(), known->second.begin(), known->second.end());
      return;
    }
    std::vector<Split> splits;
    merge(word, splits);
    out.insert(out.end(), splits.begin(), splits.end());
    if (state.known.size() < kRememberedWords) state.known.emplace(word, std::move(splits));
  }

  std::int32_t id_of(std::string_view text) const noexcept {
    const auto found = ids_.find(text);
    return found == ids_.end() ? -1 : found->second;
  }

  void take_characters(Work& work) const {
    std::string_view rest = work.text;
    while (!rest.empty()) {
      const auto symbol = symbols_.longest(rest);
      const std::size_t size = symbol.size > 0 ? symbol.size : character_size(rest);
      const auto index = static_cast<std::int32_t>(work.symbols.size());
      work.symbols.push_back({static_cast<std::uint32_t>(work.text.size() - rest.size()),
                              static_cast<std::uint32_t>(size), index - 1, index + 1, id_of(rest.substr(0, size)),
                              symbol.size > 0});
      rest.remove_prefix(size);
    }
    work.symbols.back().next = -1;
  }

  void consider(Work& work, std::int32_t left, std::int32_t right) const {
    if (left < 0 || right < 0) return;
    const Symbol& first = work.symbols[static_cast<std::size_t>(left)];
    const Symbol& second = work.symbols[static_cast<std::size_t>(right)];
    if (first.is_frozen || second.is_frozen) return;
    const std::string_view both = work.text.substr(first.begin, first.size + second.size);
    const std::int32_t id = id_of(both);
    if (id < 0) return;
    const Piece& piece = model_.pieces[static_cast<std::size_t>(id)];
    work.heap.push_back({piece.score, left, first.size + second.size, right, id});
    std::push_heap(work.heap.begin(), work.heap.end(), comes_later);
    if (piece.type == PieceType::kUnused) work.undone[both] = {both.substr(0, first.size), both.substr(first.size)};
  }

  void merge_all(Work& work) const {
    while (!work.heap.empty()) {
      std::pop_heap(work.heap.begin(), work.heap.end(), comes_later);
      const Merge next = work.heap.back();
      work.heap.pop_back();
      Symbol& left = work.symbols[static_cast<std::size_t>(next.left)];
      Symbol& right = work.symbols[static_cast<std::size_t>(next.right)];
      if (left.size == 0 || right.size == 0 || left.size + right.size != next.size) continue;
      left.size = next.size;
      left.id = next.id;
      left.next = right.next;
      if (right.next >= 0) work.symbols[static_cast<std::size_t>(right.next)].previous = next.left;
      right.size = 0;
      consider(work, left.previous, next.left);
      consider(work, next.left, left.next);
    }
  }

  void append(const Work& work, std::string_view text, std::int32_t id, std::vector<Split>& out) const {
    std::vector<std::pair<std::string_view, std::int32_t>> rest = {{text, id}};
    while (!rest.empty()) {
      const auto [piece, piece_id] = rest.back();
      rest.pop_back();
      const auto undone = work.undone.empty() ? work.undone.end() : work.undone.find(piece);
      if (undone == work.undone.end()) {
        const auto known = piece_id < 0 ? static_cast<std::int32_t>(model_.unknown_id) : piece_id;
        out.push_back({static_cast<std::uint32_t>(piece.size()), known});
      } else {
        rest.emplace_back(undone->second.second, id_of(undone->second.second));
        rest.emplace_back(undone->second.first, id_of(undone->second.first));
      }
    }
  }

  void merge(std::string_view text, std::vector<Split>& out) const {
    if (text.empty()) return;
    Work work{.text = text, .symbols = {}, .heap = {}, .undone = {}};
    take_characters(work);
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(work.symbols.size()); ++i) consider(work, i - 1, i);
    merge_all(work);
    for (std::int32_t i = 0; i >= 0; i = work.symbols[static_cast<std::size_t>(i)].next) {
      const Symbol& symbol = work.symbols[static_cast<std::size_t>(i)];
      if (!work.undone.empty()) {
        append(work, text.substr(symbol.begin, symbol.size), symbol.id, out);
      } else {
        out.push_back({symbol.size, symbol.id < 0 ? static_cast<std::int32_t>(model_.unknown_id) : symbol.id});
      }
    }
  }

  const ModelFile& model_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  Neighbours neighbours_;
  PieceTrie symbols_;
  bool has_unused_ = false;
};

}  // namespace

std::unique_ptr<Splitter> make_bpe(const ModelFile& model) { return std::make_unique<Bpe>(model); }

}  // namespace halfbyte::models::sentencepiece
