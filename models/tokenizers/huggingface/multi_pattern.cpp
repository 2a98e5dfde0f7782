#include "models/tokenizers/huggingface/multi_pattern.h"

#include <algorithm>

namespace halfbyte::models::huggingface {
namespace {

constexpr std::size_t kBlock = 65'536;

std::size_t pair_index(char first, char second) {
  return std::size_t{static_cast<unsigned char>(first)} << 8 | static_cast<unsigned char>(second);
}

}  // namespace

// Patterns from their ends, in order: those that a node of the trie leads to stand together.
struct MultiPattern::Patterns {
  const std::vector<std::string_view>& texts;
  const std::vector<bool>& in_part;
  std::vector<std::uint32_t> order;  // not the empty ones

  Patterns(const std::vector<std::string_view>& all, const std::vector<bool>& part) : texts(all), in_part(part) {
    for (std::uint32_t i = 0; i < texts.size(); ++i)
      if (!texts[i].empty()) order.push_back(i);
    const auto is_less = [](char a, char b) { return static_cast<unsigned char>(a) < static_cast<unsigned char>(b); };
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::lexicographical_compare(texts[a].rbegin(), texts[a].rend(), texts[b].rbegin(), texts[b].rend(),
                                          is_less);
    });
  }

  bool is_in(std::uint32_t pattern, Set set) const { return set == kAll || in_part.empty() || in_part[pattern]; }
  std::size_t size(std::size_t place) const { return texts[order[place]].size(); }
  char byte(std::size_t place, std::size_t depth) const { return texts[order[place]][size(place) - 1 - depth]; }

  std::size_t nodes() const {
    std::size_t count = 1;
    std::string_view last;
    for (const std::uint32_t pattern : order) {
      const std::string_view text = texts[pattern];
      count += static_cast<std::size_t>(text.rend() -
                                        std::mismatch(text.rbegin(), text.rend(), last.rbegin(), last.rend()).first);
      last = text;
    }
    return count;
  }
};

MultiPattern::MultiPattern(const std::vector<std::string_view>& texts, const std::vector<bool>& in_part) {
  const Patterns patterns(texts, in_part);
  for (const std::string_view text : texts) lengths_.push_back(static_cast<std::uint32_t>(text.size()));
  for (const std::uint32_t index : patterns.order) {
    const std::string_view text = texts[index];
    for (const Set set : {kAll, kPart}) counts_[set] += patterns.is_in(index, set);
    longest_ = std::max(longest_, text.size());
    firsts_.set(static_cast<unsigned char>(text[0]));
    for (std::size_t second = 0; text.size() == 1 && second < 256; ++second)
      first_pairs_.set(pair_index(text[0], static_cast<char>(second)));
    if (text.size() > 1) first_pairs_.set(pair_index(text[0], text[1]));
  }
  build(patterns);
  link();
}

// Breadth first.
void MultiPattern::build(const Patterns& patterns) {
  struct Range {
    std::uint32_t begin;
    std::uint32_t end;
  };
  nodes_.reserve(patterns.nodes());
  nodes_.emplace_back();
  std::vector<Range> level = {{0, static_cast<std::uint32_t>(patterns.order.size())}};
  std::vector<Range> next;
  std::size_t node = 0;
  for (std::size_t depth = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    for (auto [begin, end] : level) {
      for (; begin < end && patterns.size(begin) == depth; ++begin) {
        const std::uint32_t index = patterns.order[begin];
        for (const Set set : {kAll, kPart}) {
          std::uint32_t& found = nodes_[node].pattern[set];
          if (found == kNone && patterns.is_in(index, set)) found = index;
        }
      }
      nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
      while (begin < end) {
        const char byte = patterns.byte(begin, depth);
        std::uint32_t after = begin;
        while (after < end && patterns.byte(after, depth) == byte) ++after;
        ++nodes_[node].children;
        nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
        next.push_back({begin, after});
        begin = after;
      }
      ++node;
    }
  }
  const Node& root = nodes_[0];
  for (std::uint32_t i = 0; i < root.children; ++i) by_byte_[nodes_[root.first_child + i].byte] = root.first_child + i;
}

std::uint32_t MultiPattern::child(std::uint32_t node, char byte) const noexcept {
  const auto wanted = static_cast<unsigned char>(byte);
  if (node == 0) return by_byte_[wanted];
  std::uint32_t low = nodes_[node].first_child;
  std::uint32_t high = low + nodes_[node].children;
  while (high - low > 8) {
    const std::uint32_t middle = low + (high - low) / 2;
    (nodes_[middle].byte <= wanted ? low : high) = middle;
  }
  for (; low < high; ++low)
    if (nodes_[low].byte == wanted) return low;
  return 0;
}

std::uint32_t MultiPattern::step(std::uint32_t node, char byte) const noexcept {
  for (;; node = nodes_[node].shorter) {
    if (const std::uint32_t next = child(node, byte)) return next;
    if (node == 0) return 0;
  }
}

// Nodes stand by rising depth: a shorter part is ready before what is longer asks for it.
void MultiPattern::link() {
  for (std::size_t parent = 0; parent < nodes_.size(); ++parent) {
    for (std::uint32_t i = 0; i < nodes_[parent].children; ++i) {
      Node& node = nodes_[nodes_[parent].first_child + i];
      node.shorter = parent == 0 ? 0 : step(nodes_[parent].shorter, static_cast<char>(node.byte));
      for (const Set set : {kAll, kPart})
        if (node.pattern[set] == kNone) node.pattern[set] = nodes_[node.shorter].pattern[set];
    }
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
    const std::uint32_t pattern = patterns_.nodes_[node].pattern[set_];
    if (pattern != kNone && end < block_end) waiting_.push_back({end, end + patterns_.lengths_[pattern], pattern});
  }
  ready_ = block_end;
}

bool MultiPattern::Scan::next(Found& found) {
  if (patterns_.empty(set_)) return false;
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
