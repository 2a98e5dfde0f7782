#include "models/tokenizers/huggingface/bpe_tables.h"

#include <algorithm>
#include <bit>

namespace halfbyte::models::huggingface {
namespace {

using Symbol = Workspace::Symbol;
using Merge = Workspace::Merge;

constexpr std::size_t kFewSymbols = 24;  // up to here looking through all ranks is faster than a heap
constexpr std::uint32_t kEnd = UINT32_MAX;

bool is_later(const Merge& a, const Merge& b) { return a.rank != b.rank ? a.rank > b.rank : a.position > b.position; }

std::size_t merge_few(const MergeTable& table, Symbol* symbols, std::uint32_t* ranks, std::size_t count) {
  const auto rank_at = [&](std::size_t i) { return table.find(symbols[i].id, symbols[i + 1].id).rank; };
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_at(i);
  while (count > 1) {
    const auto best = static_cast<std::size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
    if (ranks[best] == MergeTable::kNoRank) break;
    symbols[best].id = table.find(symbols[best].id, symbols[best + 1].id).id;
    symbols[best].length += symbols[best + 1].length;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    std::copy(ranks + best + 1, ranks + count - 1, ranks + best);
    --count;
    if (best + 1 < count) ranks[best] = rank_at(best);
    if (best > 0) ranks[best - 1] = rank_at(best - 1);
  }
  return count;
}

class HeapMerger {
 public:
  HeapMerger(const MergeTable& table, Symbol* symbols, std::size_t count, std::vector<Merge>& heap)
      : table_(table), symbols_(symbols), count_(static_cast<std::uint32_t>(count)), heap_(heap) {}

  std::size_t run() {
    heap_.clear();
    for (std::uint32_t i = 0; i < count_; ++i) {
      symbols_[i].previous = i == 0 ? kEnd : i - 1;
      symbols_[i].next = i + 1 == count_ ? kEnd : i + 1;
    }
    for (std::uint32_t i = 0; i + 1 < count_; ++i) add(i, false);
    std::make_heap(heap_.begin(), heap_.end(), is_later);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), is_later);
      const Merge top = heap_.back();
      heap_.pop_back();
      merge(top);
    }
    const auto end = std::remove_if(symbols_, symbols_ + count_, [](const Symbol& s) { return s.length == 0; });
    return static_cast<std::size_t>(end - symbols_);
  }

 private:
  void add(std::uint32_t position, bool sifts) {
    const std::uint32_t next = symbols_[position].next;
    if (next == kEnd) return;
    const auto& entry = table_.find(symbols_[position].id, symbols_[next].id);
    if (entry.rank == MergeTable::kNoRank) return;
    heap_.push_back({entry.rank, position, entry.id});
    if (sifts) std::push_heap(heap_.begin(), heap_.end(), is_later);
  }

  void merge(const Merge& top) {
    Symbol& left = symbols_[top.position];
    if (left.length == 0 || left.next == kEnd) return;
    Symbol& right = symbols_[left.next];
    const auto& entry = table_.find(left.id, right.id);
    if (entry.rank == MergeTable::kNoRank || entry.id != top.id) return;  // of symbols that are no more
    left.id = top.id;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (right.next != kEnd) symbols_[right.next].previous = top.position;
    if (left.previous != kEnd) add(left.previous, true);
    add(top.position, true);
  }

  const MergeTable& table_;
  Symbol* symbols_;
  std::uint32_t count_;
  std::vector<Merge>& heap_;
};

}  // namespace

void MergeTable::reserve(std::size_t pairs) {
  entries_.assign(std::bit_ceil(pairs * 2 + 2), Entry{});
  mask_ = entries_.size() - 1;
}

void MergeTable::set(std::uint32_t left, std::uint32_t right, std::uint32_t rank, std::uint32_t id) {
  auto& entry = const_cast<Entry&>(find(left, right));
  entry = {std::uint64_t{left} << 32 | right, rank, id};
}

std::size_t merge_symbols(const MergeTable& merges, Workspace& space, std::size_t first, std::size_t count,
                          bool is_exact) {
  if (count < 2) return count;
  Symbol* symbols = space.symbols.data() + first;
  if (is_exact || count > kFewSymbols) return HeapMerger(merges, symbols, count, space.merges).run();
  space.ranks.resize(kFewSymbols);
  return merge_few(merges, symbols, space.ranks.data(), count);
}

}  // namespace halfbyte::models::huggingface
