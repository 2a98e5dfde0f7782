#include "models/tokenizers/huggingface/multi_pattern.h"

#include <algorithm>
#include <bit>

#include "models/tokenizers/huggingface/hash.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr std::size_t kBlock = 65'536;

std::size_t pair_index(char first, char second) {
  return std::size_t{static_cast<unsigned char>(first)} << 8 | static_cast<unsigned char>(second);
}

}  // namespace

MultiPattern::MultiPattern(const std::vector<std::string>& patterns) {
  std::size_t bytes = 0;
  for (const std::string& pattern : patterns) bytes += pattern.size();
  edges_.resize(std::bit_ceil(bytes * 2 + 2));
  nodes_.emplace_back();
  for (const std::string& pattern : patterns) {
    lengths_.push_back(static_cast<std::uint32_t>(pattern.size()));
    longest_ = std::max(longest_, pattern.size());
    if (!pattern.empty()) add(pattern, static_cast<std::uint32_t>(lengths_.size() - 1));
  }
  link();
}

std::size_t MultiPattern::slot(std::uint32_t node, char byte) const noexcept {
  const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  const std::size_t mask = edges_.size() - 1;
  std::size_t i = mixed(key) & mask;
  while (edges_[i].key != key && edges_[i].key != UINT64_MAX) i = (i + 1) & mask;
  return i;
}

void MultiPattern::add(std::string_view pattern, std::uint32_t index) {
  firsts_.set(static_cast<unsigned char>(pattern[0]));
  for (std::size_t second = 0; pattern.size() == 1 && second < 256; ++second)
    first_pairs_.set(pair_index(pattern[0], static_cast<char>(second)));
  if (pattern.size() > 1) first_pairs_.set(pair_index(pattern[0], pattern[1]));
  std::uint32_t node = 0;
  for (std::size_t i = pattern.size(); i-- > 0;) {
    Edge& edge = edges_[slot(node, pattern[i])];
    if (edge.key == UINT64_MAX) {
      edge = {std::uint64_t{node} << 8 | static_cast<unsigned char>(pattern[i]),
              static_cast<std::uint32_t>(nodes_.size())};
      const std::uint32_t depth = nodes_[node].depth + 1;
      nodes_.push_back({0, kNone, depth});
    }
    node = edge.node;
  }
  if (nodes_[node].pattern == kNone) nodes_[node].pattern = index;
}

std::uint32_t MultiPattern::step(std::uint32_t node, char byte) const noexcept {
  for (;; node = nodes_[node].shorter) {
    if (const std::uint32_t next = child(node, byte)) return next;
    if (node == 0) return 0;
  }
}

// Links nodes by rising depth: a shorter part is ready before what is longer asks for it.
void MultiPattern::link() {
  std::vector<Edge> edges;
  for (const Edge& edge : edges_)
    if (edge.key != UINT64_MAX) edges.push_back(edge);
  std::sort(edges.begin(), edges.end(),
            [this](const Edge& a, const Edge& b) { return nodes_[a.node].depth < nodes_[b.node].depth; });
  for (const Edge& edge : edges) {
    const auto parent = static_cast<std::uint32_t>(edge.key >> 8);
    Node& node = nodes_[edge.node];
    node.shorter = parent == 0 ? 0 : step(nodes_[parent].shorter, static_cast<char>(edge.key & 0xFF));
    if (node.pattern == kNone) node.pattern = nodes_[node.shorter].pattern;
  }
}

bool MultiPattern::may_begin(std::string_view text, std::size_t at) const noexcept {
  if (!firsts_[static_cast<unsigned char>(text[at])]) return false;
  return at + 1 == text.size() || first_pairs_[pair_index(text[at], text[at + 1])];
}

// Finds what begins in the next block that has a place where anything may begin.
void MultiPattern::Scan::look_ahead() {
  const std::size_t size = text_.size();
  std::size_t begin = std::max(ready_, at_);
  while (begin < size && !patterns_.may_begin(text_, begin)) ++begin;
  const std::size_t block_end = std::min(size, begin + std::max(kBlock, patterns_.longest_));
  std::size_t end = std::min(size, block_end + patterns_.longest_);
  std::uint32_t node = 0;
  while (end > begin) {
    node = patterns_.step(node, text_[--end]);
    const std::uint32_t pattern = patterns_.nodes_[node].pattern;
    if (pattern != kNone && end < block_end) waiting_.push_back({end, end + patterns_.lengths_[pattern], pattern});
  }
  ready_ = block_end;
}

bool MultiPattern::Scan::next(Found& found) {
  if (patterns_.empty()) return false;
  while (true) {
    while (!waiting_.empty() && waiting_.back().begin < at_) waiting_.pop_back();
    if (!waiting_.empty()) break;
    if (std::max(ready_, at_) >= text_.size()) return false;
    look_ahead();
  }
  found = waiting_.back();
  waiting_.pop_back();
  at_ = found.end;
  return true;
}

}  // namespace halfbyte::models::huggingface
