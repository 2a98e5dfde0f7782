#include <algorithm>
#include <cfloat>

#include "models/tokenizers/sentencepiece/neighbours.h"
#include "models/tokenizers/sentencepiece/normalizer.h"
#include "models/tokenizers/sentencepiece/piece_trie.h"
#include "models/tokenizers/sentencepiece/splitter.h"

namespace halfbyte::models::sentencepiece {
namespace {

constexpr float kUnknownPenalty = 10;
constexpr float kResetScore = 100'000;

// The best way to reach a place in the text: its last piece, and the sum of scores up to it.
struct Step {
  std::int32_t id = -1;
  float score = 0;
  std::int64_t from = -1;  // negative: not reached yet
};

// The best path by Viterbi. Sums are of float and set back in the same places as in SentencePiece 0.2.3, so that paths
// whose sums are nearly equal are chosen as there.
class Unigram : public Splitter {
 public:
  explicit Unigram(const ModelFile& model) : model_(model) {
    std::vector<PieceTrie::Entry> entries;
    float smallest = FLT_MAX;
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
      const Piece& piece = model.pieces[id];
      if (piece.type == PieceType::kNormal) smallest = std::min(smallest, piece.score);
      if (piece.type != PieceType::kNormal && piece.type != PieceType::kUserDefined) continue;
      entries.emplace_back(piece.text, static_cast<std::int32_t>(id));
      neighbours_.add(piece.text);
    }
    unknown_score_ = smallest - kUnknownPenalty;
    trie_ = PieceTrie(std::move(entries));
  }

  void split(std::string_view part, SplitState& state, std::vector<Split>& out) const override {
    if (part.empty()) return;
    std::vector<Step> steps(part.size() + 1);
    steps[0].score = state.score;
    std::size_t frontier = 0;
    for (std::size_t from = 0; from < part.size();) {
      set_back(steps, from, frontier);
      const std::size_t size = character_size(part.substr(from));
      if (!take_pieces(part, from, size, steps, frontier)) {
        frontier = std::max(frontier, from + size);
        improve(steps[from + size], from, steps[from].score + unknown_score_,
                static_cast<std::int32_t>(model_.unknown_id));
      }
      from += size;
    }
    state.score = steps.back().score;
    append_path(steps, out);
  }

  bool joins(std::string_view left, std::string_view right) const noexcept override {
    return neighbours_.contains(left, right);
  }

 private:
  static void improve(Step& step, std::size_t from, float score, std::int32_t id) noexcept {
    if (step.from < 0 || score > step.score) step = {id, score, static_cast<std::int64_t>(from)};
  }

  // Keeps sums small enough for float.
  static void set_back(std::vector<Step>& steps, std::size_t from, std::size_t frontier) noexcept {
    const float score = steps[from].score;
    if (score >= -kResetScore && score <= kResetScore) return;
    steps[from].score = 0;
    for (std::size_t i = from + 1; i <= frontier; ++i) {
      if (steps[i].from >= 0) steps[i].score -= score;
    }
  }

  float score_of(std::int32_t id, std::size_t size) const noexcept {
    const Piece& piece = model_.pieces[static_cast<std::size_t>(id)];
    if (piece.type != PieceType::kUserDefined) return piece.score;
    return static_cast<float>(0.1 * (static_cast<int>(size) - 1));
  }

  // Returns whether a piece is just the character that begins here.
  bool take_pieces(std::string_view part, std::size_t from, std::size_t character, std::vector<Step>& steps,
                   std::size_t& frontier) const noexcept {
    bool has_single = false;
    if (trie_.empty()) return false;
    std::uint32_t node = PieceTrie::kRoot;
    for (std::size_t end = from; end < part.size();) {
      node = trie_.step(node, static_cast<unsigned char>(part[end++]));
      if (node == PieceTrie::kNone) break;
      const std::int32_t id = trie_.number(node);
      if (id < 0) continue;
      frontier = std::max(frontier, end);
      improve(steps[end], from, score_of(id, end - from) + steps[from].score, id);
      has_single = has_single || end - from == character;
    }
    return has_single;
  }

  static void append_path(const std::vector<Step>& steps, std::vector<Split>& out) {
    const auto first = static_cast<std::ptrdiff_t>(out.size());
    for (std::size_t end = steps.size() - 1; end > 0;) {
      const auto from = static_cast<std::size_t>(steps[end].from);
      out.push_back({static_cast<std::uint32_t>(end - from), steps[end].id});
      end = from;
    }
    std::reverse(out.begin() + first, out.end());
  }

  const ModelFile& model_;
  Neighbours neighbours_;
  PieceTrie trie_;
  float unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<Splitter> make_unigram(const ModelFile& model) { return std::make_unique<Unigram>(model); }

}  // namespace halfbyte::models::sentencepiece
