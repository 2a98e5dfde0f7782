#include "models/tokenizers/huggingface/unigram.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr double kUnkPenalty = 10.0;

std::vector<std::pair<std::string, std::uint32_t>> numbered(const std::vector<std::pair<std::string, double>>& pieces) {
  std::vector<std::pair<std::string, std::uint32_t>> entries;
  for (const auto& [piece, score] : pieces) entries.emplace_back(piece, static_cast<std::uint32_t>(entries.size()));
  return entries;
}

// Edges of the trie over the pieces: bytes that a piece does not share with the one before it in order.
std::size_t trie_edges(const std::vector<std::pair<std::string, double>>& pieces) {
  std::vector<std::string_view> sorted;
  for (const auto& [piece, score] : pieces) sorted.push_back(piece);
  std::sort(sorted.begin(), sorted.end());
  std::size_t edges = 0;
  std::string_view last;
  for (const std::string_view piece : sorted) {
    const auto differs = std::mismatch(piece.begin(), piece.end(), last.begin(), last.end()).first;
    edges += static_cast<std::size_t>(piece.end() - differs);
    last = piece;
  }
  return edges;
}

std::string byte_piece(std::size_t byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

}  // namespace

Unigram::Unigram(const std::vector<std::pair<std::string, double>>& pieces, UnigramOptions options,
                 const std::string& where)
    : Model(Vocabulary(numbered(pieces), where)), options_(options), where_(where) {
  if (options_.unk_id && *options_.unk_id >= pieces.size())
    throw Error(ErrorCode::kCorrupt, where + ": unk_id " + std::to_string(*options_.unk_id) + " is beyond the " +
                                         std::to_string(pieces.size()) + " pieces");
  double lowest = std::numeric_limits<double>::infinity();
  for (const auto& [piece, score] : pieces) {
    scores_.push_back(score);
    lowest = std::min(lowest, score);
  }
  unk_score_ = lowest - kUnkPenalty;
  edges_.resize(std::bit_ceil(trie_edges(pieces) * 2 + 2));
  node_ids_.push_back(kNone);
  for (std::size_t id = 0; id < pieces.size(); ++id) add_piece(pieces[id].first, static_cast<std::uint32_t>(id));
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_ids_.push_back(vocabulary_.find(byte_piece(byte)).value_or(kNone));
}

Unigram::Edge& Unigram::edge(std::uint32_t node, char byte) {
  const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  const std::size_t mask = edges_.size() - 1;
  std::size_t i = mixed(key) & mask;
  while (edges_[i].key != key && edges_[i].key != UINT64_MAX) i = (i + 1) & mask;
  if (edges_[i].key == key) return edges_[i];
  edges_[i] = {key, static_cast<std::uint32_t>(node_ids_.size())};
  node_ids_.push_back(kNone);
  return edges_[i];
}

void Unigram::add_piece(std::string_view piece, std::uint32_t id) {
  std::uint32_t node = 0;
  for (const char byte : piece) node = edge(node, byte).node;
  if (!piece.empty()) node_ids_[node] = id;
}

std::uint32_t Unigram::child(std::uint32_t node, char byte) const noexcept {
  const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  const std::size_t mask = edges_.size() - 1;
  std::size_t i = mixed(key) & mask;
  while (edges_[i].key != key && edges_[i].key != UINT64_MAX) i = (i + 1) & mask;
  return edges_[i].key == key ? edges_[i].node : 0;
}

std::uint32_t Unigram::unk_id() const {
  if (options_.unk_id) return *options_.unk_id;
  throw Error(ErrorCode::kCorrupt, where_ + ": the text has a character that is in no piece, and unk_id is missing");
}

// Viterbi over one word. nodes[i] is the best way to byte settled_ + i.
class Unigram::Search {
 public:
  Search(const Unigram& model, std::string_view word, Workspace& space) : model_(model), word_(word), space_(space) {}

  void run() {
    space_.nodes.assign(1, {0.0, 0, 0, true});
    for (std::size_t at = 0; at < word_.size();) {
      if (furthest_ == at && at > settled_) settle(at);
      at += advance(at);
    }
    settle(word_.size());
    flush_unknown();
  }

 private:
  Workspace::Node& node(std::size_t at) {
    if (at - settled_ >= space_.nodes.size()) space_.nodes.resize(at - settled_ + 1, {0.0, 0, 0, false});
    return space_.nodes[at - settled_];
  }

  void offer(std::size_t from, std::size_t to, double score, std::uint32_t id) {
    Workspace::Node& target = node(to);
    if (!target.is_reached || score > target.score) target = {score, id, static_cast<std::uint32_t>(from), true};
    furthest_ = std::max(furthest_, to);
  }

  // Offers all pieces that begin at `at`; returns the bytes of the character there.
  std::size_t advance(std::size_t at) {
    const double base = node(at).score;
    const std::size_t char_bytes = utf8_bytes(word_[at]);
    bool has_char = false;
    std::uint32_t trie_node = 0;
    for (std::size_t end = at; end < word_.size();) {
      trie_node = model_.child(trie_node, word_[end++]);
      if (trie_node == 0) break;
      const std::uint32_t id = model_.node_ids_[trie_node];
      if (id == kNone) continue;
      offer(at, end, model_.scores_[id] + base, id);
      has_char |= end - at == char_bytes;
    }
    if (!has_char) offer_unknown(at, at + char_bytes, base);
    return char_bytes;
  }

  void offer_unknown(std::size_t at, std::size_t end, double base) {
    const Workspace::Node& target = node(end);
    const double score = model_.unk_score_ + base;
    if (!target.is_reached || score > target.score) offer(at, end, score, model_.unk_id());
    furthest_ = std::max(furthest_, end);
  }

  // All ways lead through `at`: what comes before it is decided.
  void settle(std::size_t at) {
    auto& path = space_.backwards;
    path.clear();
    for (std::size_t end = at; end > settled_;) {
      const Workspace::Node& last = node(end);
      path.push_back({last.id, last.begin, static_cast<std::uint32_t>(end)});
      end = last.begin;
    }
    for (auto token = path.rbegin(); token != path.rend(); ++token) emit(*token);
    const double score = node(at).score;
    settled_ = at;
    space_.nodes.assign(1, {score, 0, 0, true});
  }

  // Neighbours that are unknown become one token.
  void emit(const WordToken& token) {
    if (model_.options_.unk_id == token.id) {
      if (unknown_begin_ == unknown_end_) unknown_begin_ = token.begin;
      unknown_end_ = token.end;
      return;
    }
    flush_unknown();
    emit_text(token.begin, token.end);
  }

  void flush_unknown() {
    if (unknown_end_ > unknown_begin_) emit_text(unknown_begin_, unknown_end_);
    unknown_begin_ = unknown_end_;
  }

  void emit_text(std::uint32_t begin, std::uint32_t end) {
    const std::string_view text = word_.substr(begin, end - begin);
    const auto id = model_.vocabulary_.find(text);
    if (!id && model_.options_.byte_fallback && emit_bytes(text, begin, end)) return;
    space_.tokens.push_back({id ? *id : model_.unk_id(), begin, end});
  }

  bool emit_bytes(std::string_view text, std::uint32_t begin, std::uint32_t end) {
    const auto id = [this](char c) { return model_.byte_ids_[static_cast<unsigned char>(c)]; };
    if (std::any_of(text.begin(), text.end(), [&](char c) { return id(c) == kNone; })) return false;
    for (const char c : text) space_.tokens.push_back({id(c), begin, end});
    return true;
  }

  const Unigram& model_;
  std::string_view word_;
  Workspace& space_;
  std::size_t settled_ = 0;
  std::size_t furthest_ = 0;
  std::uint32_t unknown_begin_ = 0;
  std::uint32_t unknown_end_ = 0;
};

void Unigram::tokenize(std::string_view word, Workspace& space) const {
  if (!word.empty()) Search(*this, word, space).run();
}

}  // namespace halfbyte::models::huggingface
